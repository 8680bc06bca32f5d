/** Applies code blocks of answers to files, and highlights them as the editor does. */

import { Uri, WorkspaceEdit, commands, window, workspace } from 'vscode';
import type { Pages } from '../pages';
import type { Changes } from '../review/changes';
import { applyEdits } from '../review/hunks';
import { inform } from '../said';
import { namedFile, parseTokens, placeCode } from './code';
import { found } from './context';
import type { Token } from './messages';

/** The editor's highlighter runs in the extension host, which should not work on one block for long. */
const MAX_HIGHLIGHTED = 20_000;

/** Highlights code with the renderer of the editor's Markdown preview; undefined if it cannot. */
export async function highlight(language: string, code: string): Promise<Token[] | undefined> {
    if (!/^[\w+#-]{1,30}$/.test(language) || code.length > MAX_HIGHLIGHTED) {
        return undefined;
    }
    const fence = '`'.repeat(Math.max(3, ...[...code.matchAll(/`+/g)].map(([ticks]) => ticks.length + 1)));
    try {
        const html = await commands.executeCommand<string>('markdown.api.render', `${fence}${language}\n${code}\n${fence}\n`);
        return parseTokens(html, code);
    } catch {
        // Without the editor's Markdown extension, code has no colours.
        return undefined;
    }
}

/** Writes a block into the file that it names, else into the active file, and marks the change. Shows a comparison instead if
 * the place in the file is not clear. */
export async function applyBlock(changes: Changes, pages: Pages, info: string, text: string): Promise<void> {
    const { path, code } = namedFile(info, text);
    const active = (window.activeTextEditor ?? window.visibleTextEditors[0])?.document.uri;
    const uri = path === undefined ? active : ((await found(path)) ?? newFile(path));
    if (uri === undefined) {
        throw new Error('Open a file first: the code does not name the file to which it belongs.');
    }
    const name = workspace.asRelativePath(uri);
    const isNew = path !== undefined && (await found(path)) === undefined;
    if (isNew) {
        const edit = new WorkspaceEdit();
        edit.createFile(uri, { contents: new TextEncoder().encode(`${code.trimEnd()}\n`), ignoreIfExists: true });
        await workspace.applyEdit(edit);
        await window.showTextDocument(uri);
        return;
    }
    const document = await workspace.openTextDocument(uri);
    const place = placeCode(document.getText(), code);
    if (place === undefined) {
        await pages.compare(uri, name, code);
        return;
    }
    if (document.getText().slice(place.start, place.end) === place.text) {
        void inform(`${name} already has this code.`);
        return;
    }
    await window.showTextDocument(document);
    if (!(await changes.write(document, place, `thinklsp: apply code to ${name}`, applyEdits(document.getText(), [place])))) {
        throw new Error(`${name} was not changed: the editor did not apply the edit.`);
    }
}

function newFile(path: string): Uri | undefined {
    const folder = workspace.workspaceFolders?.[0]?.uri;
    return folder === undefined || path.split('/').includes('..') ? undefined : Uri.joinPath(folder, path);
}
