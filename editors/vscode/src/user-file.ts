/** The user's file `config.toml`, which the server finds. */

import { access } from 'node:fs/promises';
import { Range, Uri, window, workspace } from 'vscode';
import type { DoctorReport } from './protocol';
import type { Turns } from './turns';

const FILE = 'config.toml';
const LINE = /\bline (\d+)/;

/** Opens the user's file, at the line that an error message names. A file that does not exist yet is made when saved. */
export async function openUserFile(turns: Turns, message = ''): Promise<void> {
    const { settings, files } = await turns.ask<DoctorReport>('thinklsp.doctor');
    const path = settings?.file ?? files.find(file => file.path.endsWith(FILE))?.path;
    if (path === undefined) {
        throw new Error(`Your ${FILE} was not found.`);
    }
    const exists = await access(path).then(
        () => true,
        () => false,
    );
    const file = Uri.file(path);
    const document = await workspace.openTextDocument(exists ? file : file.with({ scheme: 'untitled' }));
    const line = Number(LINE.exec(message)?.[1] ?? 1) - 1;
    await window.showTextDocument(document, { selection: new Range(line, 0, line, 0) });
}
