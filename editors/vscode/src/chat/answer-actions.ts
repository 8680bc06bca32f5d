/** What the links and the code blocks of an answer do in the editor. */

import { Range, Uri, env, window } from 'vscode';
import { terminalLine } from './code';
import { found } from './context';
import { parsePlace } from './places';

export async function insert(text: string): Promise<void> {
    const editor = window.activeTextEditor ?? window.visibleTextEditors[0];
    if (editor === undefined) {
        throw new Error('Open a file first: there is no editor to insert the code into.');
    }
    await editor.edit(edit => editor.selections.forEach(selection => edit.replace(selection, text)));
    await window.showTextDocument(editor.document, editor.viewColumn);
}

/** Types a command into the terminal. It runs only when the user presses Enter. */
export function typeInTerminal(language: string, text: string): void {
    const line = terminalLine(language, text);
    if (line === undefined) {
        throw new Error('Only a single command can be put into the terminal. Copy the code instead.');
    }
    const terminal = window.activeTerminal ?? window.createTerminal();
    terminal.show();
    terminal.sendText(line, false);
}

/** Opens a web page, for which the editor asks first, or a file of the workspace, and nothing else. */
export async function follow(url: string): Promise<void> {
    const uri = Uri.parse(url);
    if (uri.scheme === 'https' || uri.scheme === 'http') {
        await env.openExternal(uri);
        return;
    }
    const { path, lines } = parsePlace(decodeURIComponent(url));
    const file = await found(path);
    if (file === undefined) {
        throw new Error(`The workspace has no file ${path}.`);
    }
    const selection = lines && new Range(lines[0], 0, lines[1], lines[0] === lines[1] ? 0 : Number.MAX_SAFE_INTEGER);
    await window.showTextDocument(file, { selection });
}
