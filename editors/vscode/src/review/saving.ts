/** Automatic saves during an edit: a save that is not finished would write a file again after the edit deleted or renamed it. */

import { type Uri, workspace } from 'vscode';
import type { ApplyWorkspaceEditResult, ResponseError, WorkspaceEdit } from 'vscode-languageclient/node';
import { findRemoved, splitAtRenames } from './operations';

type Answer = ApplyWorkspaceEditResult | ResponseError;

/** Waits until the editor has saved a changed document, if the document is open and the editor saves documents by itself. */
export async function finishSave(uri: Uri): Promise<void> {
    const spelled = uri.toString();
    const document = workspace.textDocuments.find(one => one.uri.toString() === spelled);
    if (document?.isDirty && isSavedByItself(uri)) {
        // The editor does not save the same text twice: it waits for the save that is running.
        await document.save();
    }
}

/** Applies an edit of the server, but neither deletes nor renames a file before its save is finished. Returns the last answer. */
export async function applyAroundSaves(
    edit: WorkspaceEdit,
    asUri: (uri: string) => Uri,
    write: (part: WorkspaceEdit) => Promise<Answer>,
): Promise<Answer> {
    let answer: Answer = { applied: true };
    for (const part of splitAtRenames(edit, uri => isSavedByItself(asUri(uri)))) {
        await Promise.all((part.documentChanges ?? []).flatMap(findRemoved).map(uri => finishSave(asUri(uri))));
        answer = await write(part);
        if (!isApplied(answer)) {
            break;
        }
    }
    return answer;
}

export function isApplied(answer: Answer): boolean {
    return 'applied' in answer && answer.applied;
}

function isSavedByItself(uri: Uri): boolean {
    return workspace.getConfiguration('files', uri).get('autoSave', 'off') !== 'off';
}
