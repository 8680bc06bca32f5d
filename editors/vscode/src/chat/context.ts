/** What goes along with a prompt: the selection, and what its `@` words mean; and the words that can be meant. */

import * as path from 'node:path';
import { type Diagnostic, DiagnosticSeverity, type TextEditor, Uri, languages, window, workspace } from 'vscode';
import type { Range } from 'vscode-languageclient/node';
import type { Offer } from './messages';
import { mentions } from './words';

export interface Place {
    uri: Uri;
    /** Whole lines that count from 0, both ends included; undefined: the whole file. */
    lines: readonly [number, number] | undefined;
}

export interface Along {
    /** The prompt, with what has no place of its own written below it. */
    prompt: string;
    places: Place[];
    /** What was asked for and is not there. */
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

/** The selected lines of the editor that was used last; undefined where nothing is selected. */
export function selected(editor: TextEditor | undefined = window.activeTextEditor): Place | undefined {
    if (editor === undefined || editor.selection.isEmpty || !isFile(editor.document.uri)) {
        return undefined;
    }
    const { start, end } = editor.selection;
    const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
    return { uri: editor.document.uri, lines: [start.line, last] };
}

export function labelled({ uri, lines }: Place): string {
    const name = path.posix.basename(uri.path);
    if (lines === undefined) {
        return name;
    }
    return lines[0] === lines[1] ? `${name}:${lines[0] + 1}` : `${name}:${lines[0] + 1}-${lines[1] + 1}`;
}

/** As a command of the server takes it. */
export function reference({ uri, lines }: Place): string | { uri: string; range: Range } {
    if (lines === undefined) {
        return uri.toString();
    }
    // A range that ends where a line begins does not hold that line.
    const [start, end] = [{ line: lines[0], character: 0 }, { line: lines[1] + 1, character: 0 }];
    return { uri: uri.toString(), range: { start, end } };
}

export async function along(prompt: string, selection: boolean): Promise<Along> {
    const places = new Map<string, Place>();
    const missing: string[] = [];
    const add = (place: Place): unknown => places.set(`${place.uri.toString()} ${place.lines}`, place);
    let whole = prompt;
    const marked = selected();
    if (selection && marked !== undefined) {
        add(marked);
    }
    for (const { path: name, first, last } of mentions(prompt)) {
        if (name === 'selection') {
            marked === undefined ? missing.push('@selection was left out: nothing is selected.') : add(marked);
        } else if (name === 'diagnostics') {
            const found = diagnosed();
            if (found === undefined) {
                missing.push('@diagnostics was left out: the open file has none.');
            } else {
                whole = `${whole}\n\n${found.text}`;
                add(found.place);
            }
        } else {
            const uri = await found(name);
            // A word after an @ that names no file is just a word.
            if (uri !== undefined) {
                add({ uri, lines: first === undefined ? undefined : [first - 1, Math.max(first, last ?? first) - 1] });
            }
        }
    }
    return { prompt: whole, places: [...places.values()], missing };
}

/** Words that begin or hold what was typed behind the `@`. */
export async function offers(word: string): Promise<Offer[]> {
    const typed = word.replace(/^@/, '').toLowerCase();
    const special: Offer[] = [
        { label: '@selection', insert: '@selection ', detail: 'the selected lines' },
        { label: '@diagnostics', insert: '@diagnostics ', detail: 'problems of the open file' },
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

/** A file of the workspace by its path there, or an open one by its name. */
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
