/** The files of an edit of the server: their text before the edit, their hunks, and how the editor undoes a hunk. */

import { EndOfLine, Position, Range, type TextDocument, Uri, WorkspaceEdit, workspace } from 'vscode';
import type { TextEdit, WorkspaceEdit as SentEdit } from 'vscode-languageclient/node';
import { type Hunk, type Replacement, applyEdits, isSameText, placeHunks } from './hunks';

/** Chat documents, in which an answer is no change to review. */
const CHAT = /\/\.thinklsp\/|\.chat\.md$/;

/** A file that a turn changed, with the hunks that the user has not decided on. */
export interface ChangedFile {
    readonly turn: ChangedBy;
    /** The current URI; for a deleted file its former one. */
    uri: Uri;
    /** The URI in the server's edit. */
    readonly sentUri: string;
    readonly operation: 'change' | 'create' | 'delete' | 'rename';
    /** The former URI of a renamed file. */
    readonly from: Uri | undefined;
    /** The text before the turn; empty for a created file. */
    readonly before: string;
    /** The text after the turn; empty for a deleted file. */
    readonly written: string;
    /** The text in which the hunks have their places. */
    now: string;
    hunks: Hunk[];
    /** The numbers of hunks that the user has decided on. */
    kept: number;
    undone: number;
}

/** The turn of an edit. `turnId` is known when the turn has ended. */
export interface ChangedBy {
    readonly label: string;
    turnId: string | undefined;
    /** The model's answer, and the outcome of the tests. */
    text: string;
    tests: string;
    files: ChangedFile[];
    /** Also the files that the user has decided on. */
    all: readonly ChangedFile[];
}

/** A part of an undo, with the hunks that it undoes. */
export interface UndoStep {
    readonly edit: WorkspaceEdit;
    readonly hunks: readonly Hunk[];
}

export function newTurn(label: string, turnId?: string): ChangedBy {
    return { label, turnId, text: '', tests: '', files: [], all: [] };
}

/** Returns a changed file without hunks and decisions. */
export function newFile(turn: ChangedBy, uri: Uri, before: string, written: string): ChangedFile {
    const nothing = { from: undefined, hunks: [], kept: 0, undone: 0 };
    return { turn, uri, sentUri: uri.toString(), operation: 'change', before, written, now: written, ...nothing };
}

/** Returns the files of an edit. The server numbers their hunks: text edits first, then the rename of the file. */
export async function prepareFiles(turn: ChangedBy, edit: SentEdit, asUri: (uri: string) => Uri): Promise<ChangedFile[]> {
    const found = new Map<string, ChangedFile>();
    const add = (file: Partial<ChangedFile> & { sentUri: string }, before: string, hunks: Hunk[], written: string) => {
        found.set(file.sentUri, { ...newFile(turn, asUri(file.sentUri), before, written), ...file, hunks });
    };
    for (const change of edit.documentChanges ?? []) {
        if (!('kind' in change)) {
            const sentUri = change.textDocument.uri;
            const edits = change.edits as TextEdit[];
            if (found.get(sentUri)?.operation === 'create') {
                const text = edits.map(one => one.newText).join('');
                add({ sentUri, operation: 'create' }, '', placeHunks('', [{ start: 0, end: 0, text }]), text);
            } else {
                const document = await workspace.openTextDocument(asUri(sentUri));
                const text = document.getText();
                const replaced = replacements(document, edits);
                add({ sentUri }, text, placeHunks(text, replaced), applyEdits(text, replaced));
            }
        } else if (change.kind === 'create') {
            add({ sentUri: change.uri, operation: 'create' }, '', [empty(0)], '');
        } else if (change.kind === 'delete') {
            const text = (await workspace.openTextDocument(asUri(change.uri))).getText();
            add({ sentUri: change.uri, operation: 'delete' }, text, [empty(0)], '');
        } else {
            const { oldUri: sentUri, newUri } = change;
            const known = found.get(sentUri);
            const text = known?.before ?? (await workspace.openTextDocument(asUri(sentUri))).getText();
            const hunks = known?.hunks ?? [];
            const renamed = { sentUri, operation: 'rename', uri: asUri(newUri), from: asUri(sentUri) } as const;
            add(renamed, text, [...hunks, empty(hunks.length)], known?.written ?? text);
        }
    }
    return [...found.values()];
}

/** Returns the files of an edit that get marks. If a file cannot be read as text, there are none. */
export async function prepareMarked(turn: ChangedBy, edit: SentEdit, asUri: (uri: string) => Uri): Promise<ChangedFile[]> {
    const files = await prepareFiles(turn, edit, asUri).catch(() => []);
    return files.filter(({ sentUri }) => !CHAT.test(sentUri));
}

/** Returns what restores the text of a file before these hunks, and then what restores its place. */
export async function buildUndo(file: ChangedFile, hunks: readonly Hunk[]): Promise<UndoStep[]> {
    const [text, place] = [new WorkspaceEdit(), new WorkspaceEdit()];
    if (file.operation === 'create') {
        place.deleteFile(file.uri, { ignoreIfNotExists: true });
        return [{ edit: place, hunks }];
    }
    if (file.operation === 'delete') {
        place.createFile(file.uri, { contents: new TextEncoder().encode(file.before), ignoreIfExists: true });
        return [{ edit: place, hunks }];
    }
    const [whole, changed] = [hunks.filter(isWhole), hunks.filter(hunk => !isWhole(hunk))];
    const document = await workspace.openTextDocument(file.uri);
    for (const hunk of changed) {
        text.replace(file.uri, rangeOf(hunk, document), hunk.before);
    }
    if (whole.length > 0 && file.from !== undefined) {
        place.renameFile(file.uri, file.from);
    }
    return [{ edit: text, hunks: changed }, { edit: place, hunks: whole }].filter(step => step.hunks.length > 0);
}

/**
 * Returns the files that have the text of their turn. In the others, the user has already typed again, so their hunks may have moved.
 * A document that is not open is opened again: the editor closes the document of a new file as soon as it has saved it.
 */
export async function findWritten(files: readonly ChangedFile[]): Promise<ChangedFile[]> {
    const opening = files.map(file => (file.operation === 'delete' ? undefined : openText(file.uri)));
    const documents = await Promise.all(opening);
    return files.filter((file, at) => file.operation === 'delete' || hasWritten(file, documents[at]?.getText()));
}

/** Returns whether a file that a turn created still has its text, or does not exist. */
export async function isAsCreated(file: ChangedFile): Promise<boolean> {
    const document = await openText(file.uri);
    return document === undefined || isSameText(document.getText(), file.written);
}

/** Returns whether a text is that of the turn. The hunk of a created file grows with the white space that a save has added. */
function hasWritten(file: ChangedFile, text: string | undefined): boolean {
    if (text === undefined || file.operation !== 'create') {
        return text === file.written;
    }
    file.hunks = file.hunks.map(hunk => (isWhole(hunk) ? hunk : { ...hunk, end: text.length }));
    file.now = text;
    return isSameText(text, file.written);
}

async function openText(uri: Uri): Promise<TextDocument | undefined> {
    return workspace.openTextDocument(uri).then(undefined, () => undefined);
}

/** Returns whether a hunk is an operation on the whole file, without text of its own. */
export function isWhole(hunk: Hunk): boolean {
    return hunk.start < 0;
}

/** Returns the lines of a hunk in its document. */
export function lineRangeOf(hunk: Hunk, document: TextDocument): Range {
    const first = document.positionAt(hunk.start).line;
    const end = document.positionAt(hunk.end);
    const last = end.character === 0 ? end.line - 1 : end.line;
    return new Range(first, 0, Math.max(first, last), 0);
}

function rangeOf(hunk: Hunk, document: TextDocument): Range {
    return new Range(document.positionAt(hunk.start), document.positionAt(hunk.end));
}

function empty(number: number): Hunk {
    return { number, start: -1, end: -1, before: '' };
}

/** Converts text edits of the server to replacements in a document. */
function replacements(document: TextDocument, edits: readonly TextEdit[]): Replacement[] {
    const offset = ({ line, character }: { line: number; character: number }) => document.offsetAt(new Position(line, character));
    return edits.map(({ range, newText }) => ({
        start: offset(range.start),
        end: offset(range.end),
        // The editor uses the line ends of the document.
        text: document.eol === EndOfLine.CRLF ? newText.replace(/\r?\n/g, '\r\n') : newText.replace(/\r\n/g, '\n'),
    }));
}
