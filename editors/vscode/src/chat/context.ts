/** The context of a prompt: the selection and the `@` references, and the completions for them. */

import * as path from 'node:path';
import { type Diagnostic, DiagnosticSeverity, type TextEditor, Uri, languages, window, workspace } from 'vscode';
import type { Range } from 'vscode-languageclient/node';
import type { ActionArgument } from '../protocol';
import type { Offer, SentPlace } from './messages';
import { parsePlace } from './places';
import { mentions } from './words';

export interface Place {
    uri: Uri;
    /** Whole lines, counted from 0, both ends included; undefined for the whole file. */
    lines: readonly [number, number] | undefined;
}

export interface Along {
    /** The prompt, followed by the diagnostics that it refers to. */
    prompt: string;
    places: Place[];
    /** A sentence for each reference that could not be resolved. */
    missing: string[];
}

const OFFERED = 40;
const AROUND = 3;
const MENTIONED = /^[^\s:@]+$/;
const SEVERITIES = {
    [DiagnosticSeverity.Error]: 'error',
    [DiagnosticSeverity.Warning]: 'warning',
    [DiagnosticSeverity.Information]: 'information',
    [DiagnosticSeverity.Hint]: 'hint',
};

/** The server sends at most this many lines of a place. */
const MAX_LINES = 400;
/** Files that are never sent unless the user selects lines or names them. The server refuses to read most of them. */
const SECRET = /^\.env|^\.(?:netrc|npmrc|pypirc)$|^id_(?:rsa|dsa|ecdsa|ed25519)|credentials|\.(?:pem|key|p12|pfx|jks|kdbx)$/i;

/** Returns the place that a prompt includes unless the user leaves it out: the selection, else the active file. */
export function implied(editor: TextEditor | undefined = window.activeTextEditor): Place | undefined {
    const uri = editor?.document.uri;
    const marked = selected(editor);
    if (marked !== undefined || editor === undefined || uri === undefined || !isFile(uri)) {
        return marked;
    }
    const isInside = uri.scheme === 'untitled' || workspace.getWorkspaceFolder(uri) !== undefined;
    if (!isInside || SECRET.test(path.posix.basename(uri.path))) {
        return undefined;
    }
    const { lineCount } = editor.document;
    if (lineCount <= MAX_LINES) {
        return { uri, lines: undefined };
    }
    const first = Math.max(0, Math.min(editor.selection.active.line - MAX_LINES / 2, lineCount - MAX_LINES));
    return { uri, lines: [first, first + MAX_LINES - 1] };
}

/** Returns the selected lines of the last active editor; undefined if nothing is selected. */
export function selected(editor: TextEditor | undefined = window.activeTextEditor): Place | undefined {
    if (editor === undefined || editor.selection.isEmpty || !isFile(editor.document.uri)) {
        return undefined;
    }
    const { start, end } = editor.selection;
    const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
    return { uri: editor.document.uri, lines: [start.line, Math.min(last, start.line + MAX_LINES - 1)] };
}

/** Returns the place of a code action. A range over the whole file is shown without lines. */
export function placeOf({ uri, range }: ActionArgument): Place | undefined {
    if (uri === undefined) {
        return undefined;
    }
    if (range === undefined) {
        return { uri: Uri.parse(uri), lines: undefined };
    }
    const { start, end } = range;
    const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
    return { uri: Uri.parse(uri), lines: [start.line, last] };
}

export function labelled({ uri, lines }: Place): string {
    const name = path.posix.basename(uri.path);
    if (lines === undefined) {
        return name;
    }
    return lines[0] === lines[1] ? `${name}:${lines[0] + 1}` : `${name}:${lines[0] + 1}-${lines[1] + 1}`;
}

/** Converts a reference to the format of the server's commands. */
export function reference({ uri, lines }: Place): string | { uri: string; range: Range } {
    if (lines === undefined) {
        return uri.toString();
    }
    // A range that ends at the start of a line does not include that line.
    const [start, end] = [{ line: lines[0], character: 0 }, { line: lines[1] + 1, character: 0 }];
    return { uri: uri.toString(), range: { start, end } };
}

/** Converts a place for the view. */
export function toView(place: Place): { label: string; place: SentPlace } {
    const lines = place.lines === undefined ? null : { first: place.lines[0], last: place.lines[1] };
    return { label: labelled(place), place: { uri: place.uri.toString(), lines } };
}

export function fromView({ uri, lines }: SentPlace): Place {
    return { uri: Uri.parse(uri), lines: lines === null ? undefined : [lines.first, lines.last] };
}

/** Finds the places of a stored prompt, such as `src/app.py:3-9`. Places whose file is gone are left out. */
export async function findPlaces(references: readonly string[]): Promise<Place[]> {
    const places = await Promise.all(
        references.map(async reference => {
            const { path: name, lines } = parsePlace(reference);
            const uri = await found(name);
            return uri === undefined ? [] : [{ uri, lines }];
        }),
    );
    return places.flat();
}

/** Returns what is sent with a prompt that replaces an earlier one: its places, but only the references of the new prompt. */
export async function alongAgain(prompt: string, before: string, places: readonly Place[]): Promise<Along> {
    const referenced = new Set((await along(before, [])).places.map(keyOf));
    return along(prompt, places.filter(place => !referenced.has(keyOf(place))));
}

/** Returns what is sent with a prompt: these places and its `@` references. */
export async function along(prompt: string, included: readonly Place[]): Promise<Along> {
    const places = new Map(included.map(place => [keyOf(place), place]));
    const missing: string[] = [];
    const add = (place: Place): unknown => places.set(keyOf(place), place);
    let whole = prompt;
    const marked = selected();
    for (const { path: name, first, last } of mentions(prompt)) {
        if (name === 'selection') {
            marked === undefined ? missing.push('@selection was left out: nothing is selected.') : add(marked);
        } else if (name === 'diagnostics') {
            const found = diagnosed();
            if (found === undefined) {
                missing.push('@diagnostics was left out: the open file has no diagnostics.');
            } else {
                whole = `${whole}\n\n${found.text}`;
                add(found.place);
            }
        } else {
            const uri = await found(name);
            // A word after an @ that is not a file stays ordinary text.
            if (uri !== undefined) {
                add({ uri, lines: first === undefined ? undefined : [first - 1, Math.max(first, last ?? first) - 1] });
            }
        }
    }
    return { prompt: whole, places: [...places.values()], missing };
}

/** Returns the references that start with or contain the text after the `@`. */
export async function offers(word: string): Promise<Offer[]> {
    const typed = word.replace(/^@/, '').toLowerCase();
    const special: Offer[] = [
        { label: '@selection', insert: '@selection ', detail: 'the selected lines' },
        { label: '@diagnostics', insert: '@diagnostics ', detail: 'diagnostics of the open file' },
    ].filter(offer => offer.label.startsWith(`@${typed}`));
    const open = window.tabGroups.all
        .flatMap(group => group.tabs)
        .map(tab => (tab.input as { uri?: Uri } | undefined)?.uri)
        .filter(uri => uri instanceof Uri && isFile(uri) && workspace.getWorkspaceFolder(uri) !== undefined) as Uri[];
    const names = typed.replace(/[^\p{L}\p{N}._/-]/gu, '');
    const anyCase = [...names].map(one => (one.toUpperCase() === one ? one : `[${one}${one.toUpperCase()}]`)).join('');
    const files = await workspace.findFiles(`**/*${anyCase}*`, undefined, 4 * OFFERED);
    const paths = new Set([...open, ...files.sort((one, other) => one.path.length - other.path.length)].map(relative));
    const matching = [...paths].filter(name => MENTIONED.test(name) && name.toLowerCase().includes(typed));
    const found = matching.slice(0, OFFERED).map(name => ({
        label: path.posix.basename(name),
        insert: `@${name} `,
        detail: path.posix.dirname(name) === '.' ? '' : path.posix.dirname(name),
    }));
    return [...special, ...found];
}

/** Finds a file by its path in the workspace, or an open file by its name. */
export async function found(name: string): Promise<Uri | undefined> {
    const folders = workspace.workspaceFolders ?? [];
    const wishes = folders.map(folder => Uri.joinPath(folder.uri, name));
    const [first, ...rest] = name.split('/');
    const named = folders.find(folder => folder.name === first);
    if (folders.length > 1 && named !== undefined) {
        wishes.unshift(Uri.joinPath(named.uri, ...rest));
    }
    for (const uri of wishes) {
        if (workspace.getWorkspaceFolder(uri) !== undefined && (await exists(uri))) {
            return uri;
        }
    }
    return workspace.textDocuments.find(({ uri }) => isFile(uri) && path.posix.basename(uri.path) === name)?.uri;
}

function keyOf({ uri, lines }: Place): string {
    return `${uri.toString()} ${lines}`;
}

function diagnosed(): { place: Place; text: string } | undefined {
    const uri = window.activeTextEditor?.document.uri;
    const problems = uri === undefined ? [] : languages.getDiagnostics(uri);
    if (uri === undefined || problems.length === 0) {
        return undefined;
    }
    const lines = problems.flatMap(({ range }) => [range.start.line, range.end.line]);
    const around = [Math.max(0, Math.min(...lines) - AROUND), Math.max(...lines) + AROUND] as const;
    return { place: { uri, lines: around }, text: `Diagnostics of ${relative(uri)}:\n${problems.map(told).join('\n')}` };
}

function told({ range, severity, message, source }: Diagnostic): string {
    const origin = source === undefined ? '' : ` (${source})`;
    return `- line ${range.start.line + 1}: ${SEVERITIES[severity]}: ${message.replace(/\s+/g, ' ')}${origin}`;
}

function relative(uri: Uri): string {
    return workspace.asRelativePath(uri).replaceAll('\\', '/');
}

function isFile(uri: Uri): boolean {
    return uri.scheme === 'file' || uri.scheme === 'untitled' || uri.scheme === 'vscode-remote';
}

async function exists(uri: Uri): Promise<boolean> {
    try {
        await workspace.fs.stat(uri);
        return true;
    } catch {
        return false;
    }
}
