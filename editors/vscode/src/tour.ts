/** The offline tour: a sample folder in a window of its own, with a walkthrough of five steps. */

import { type ExtensionContext, Uri, commands, window, workspace } from 'vscode';
import type { TurnResult } from './protocol';

const FOLDER = 'thinklsp-tour';

/** Whether this window plays the tour. Then the simulator answers, whatever the settings say. */
export function isTour(): boolean {
    return workspace.workspaceFolders?.[0]?.uri.path.endsWith(`/thinklsp.thinklsp/${FOLDER}`) === true;
}

/** Makes the sample folder anew and opens it in a new window. In that window, goes back to the walkthrough. */
export async function openTour(context: ExtensionContext): Promise<void> {
    if (isTour()) {
        return showTour(context);
    }
    const folder = folderOf(context);
    await workspace.fs.copy(Uri.joinPath(context.extensionUri, 'media', 'tour'), folder, { overwrite: true });
    await commands.executeCommand('vscode.openFolder', folder, { forceNewWindow: true });
}

/** Shows the walkthrough if this window plays the tour. */
export async function showTour(context: ExtensionContext): Promise<void> {
    if (isTour()) {
        await commands.executeCommand('setContext', 'thinklsp.tour', true);
        await commands.executeCommand('workbench.action.openWalkthrough', `${context.extension.id}#tour`, false);
    }
}

/** Ticks the step of the tour that an action has completed. */
export function tickTour(action: string, { edits, stopReason }: TurnResult): void {
    if (isTour() && stopReason === 'end_turn') {
        const step = action !== 'edit' ? action : (edits?.files.length ?? 0) > 1 ? 'files' : 'conflict';
        void commands.executeCommand('setContext', `thinklsp.tour.${step}`, true);
    }
}

/** Opens a file of the sample folder. */
export async function openTourFile(context: ExtensionContext, name: string): Promise<void> {
    await window.showTextDocument(Uri.joinPath(folderOf(context), name));
}

function folderOf(context: ExtensionContext): Uri {
    return Uri.joinPath(context.globalStorageUri, FOLDER);
}
