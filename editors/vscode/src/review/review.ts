/** The review of edits: commands on changed hunks, a summary of all files, and the question before an edit is written. */

import {
    type CancellationToken,
    type Disposable,
    type QuickPickItem,
    Range,
    Selection,
    StatusBarAlignment,
    type TextEditor,
    TextEditorRevealType,
    Uri,
    commands,
    window,
    workspace,
} from 'vscode';
import type { WorkspaceEdit } from 'vscode-languageclient/node';
import type { Client } from '../client';
import type { Pages } from '../pages';
import type { Questions } from '../questions';
import { told } from '../said';
import type { Running, Turns } from '../turns';
import { type ChangedFile, isWhole, lineRangeOf, newTurn, prepareFiles } from './changed-files';
import type { Changes } from './changes';
import type { Hunk } from './hunks';
import { COMPARE, type HunkArgument, KEEP, KEEP_FILE, SHOW, UNDO, UNDO_FILE } from './marks';
import { countChanges, nameOf, plainLine, summaryOf, testsOf } from './words';

const KEEP_ALL = 'Keep all';
const CHOOSE = 'Choose…';
const NONE = 'Not now';

/** The params of the server's request `thinklsp/editor/review`. */
export interface ReviewParams {
    turnId: string;
    label: string;
    edit: WorkspaceEdit;
    reasons: { uri: string; hunk: number; reason: string }[];
}

export interface ReviewAnswer {
    files: { uri: string; kept: number[] }[];
}

/** A hunk of an edit that is not written yet. */
interface Proposed extends QuickPickItem {
    uri: string;
    hunk: number;
}

/** A file of the multi-diff editor: its name, and the texts before and after. */
type Resource = [Uri, Uri | undefined, Uri | undefined];

export class Review implements Disposable {
    private readonly item = window.createStatusBarItem('thinklsp.changes', StatusBarAlignment.Left, 0);
    private readonly running = new Set<Running>();
    private readonly subscriptions: Disposable[];

    constructor(
        private readonly changes: Changes,
        private readonly pages: Pages,
        private readonly questions: Questions,
        turns: Turns,
        private readonly connect: () => Promise<Client>,
    ) {
        this.item.name = 'thinklsp: changes to review';
        const run: Record<string, (given?: never) => unknown> = {
            [KEEP]: (given?: HunkArgument) => this.at(given, (file, hunk) => changes.keep(file, [hunk])),
            [UNDO]: (given?: HunkArgument) => this.at(given, (file, hunk) => changes.undo(file, [hunk])),
            [COMPARE]: (given?: HunkArgument) => this.at(given, (file, hunk) => this.compare(file, hunk)),
            [KEEP_FILE]: (given?: string) => this.here(given).forEach(file => changes.keep(file)),
            [UNDO_FILE]: async (given?: string) => {
                for (const file of this.here(given).reverse()) {
                    await changes.undo(file);
                }
            },
            [SHOW]: () => this.show(),
            'thinklsp.ui.keepAllChanges': () => this.keepAll(),
            'thinklsp.ui.undoAllChanges': () => changes.undoAll(),
            'thinklsp.ui.nextChange': () => this.go(1),
            'thinklsp.ui.previousChange': () => this.go(-1),
        };
        this.subscriptions = [
            this.item,
            changes.onDidChange(() => this.draw()),
            window.onDidChangeActiveTextEditor(() => changes.look()),
            turns.onDidStart(running => {
                this.running.add(running);
                running.result
                    .then(
                        result => changes.claim(result.turnId, result.edits?.files ?? [], result.text, testsOf(result.verified)),
                        () => undefined,
                    )
                    .finally(() => this.running.delete(running));
            }),
            ...Object.entries(run).map(([id, command]) => commands.registerCommand(id, given => told(async () => command(given as never)))),
        ];
    }

    /** Asks the user which hunks of an edit to keep; nothing has been written yet. */
    async ask({ turnId, label, edit, reasons }: ReviewParams, token: CancellationToken): Promise<ReviewAnswer> {
        const { asUri } = (await this.connect()).protocol2CodeConverter;
        const files = await prepareFiles(newTurn(label), edit, uri => asUri(uri));
        const hunks = listHunks(files, reasons);
        const said = lastMessage(this.find(turnId));
        const title = titleOf(label, hunks.length, said);
        await commands.executeCommand('vscode.changes', title, this.resources(files, said));
        const beyond = new Set(reasons.map(reason => reason.reason));
        const why = beyond.size === 0 ? '' : ` (${[...beyond].slice(0, 2).join('; ')})`;
        let kept: readonly Proposed[] = [];
        const answer = await this.questions.ask(`${label} – ${countOf(hunks)}${why}. Keep the changes?`, [KEEP_ALL, CHOOSE, NONE], token);
        if (answer === KEEP_ALL) {
            kept = hunks;
        } else if (answer === CHOOSE) {
            kept = (await choose(hunks)) ?? [];
        }
        await closeTab(title);
        if (kept.length > 0) {
            this.changes.expectReviewed(label);
        }
        const uris = [...new Set(kept.map(hunk => hunk.uri))];
        return { files: uris.map(uri => ({ uri, kept: kept.filter(hunk => hunk.uri === uri).map(hunk => hunk.hunk) })) };
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    /** Keeps all changes that are written, and those that wait for the answer to a question. */
    private keepAll(): void {
        this.changes.keepAll();
        this.questions.open.filter(({ options }) => options.includes(KEEP_ALL)).forEach(question => question.answer(KEEP_ALL));
    }

    /** Returns a running turn. The id of a chat's turn is known only when it has ended. */
    private find(turnId: string): Running | undefined {
        const all = [...this.running];
        const unknown = all.filter(running => running.turnId === undefined);
        return all.find(running => running.turnId === turnId) ?? (unknown.length === 1 ? unknown[0] : undefined);
    }

    /** Returns the files of a proposed edit for the multi-diff editor, below what the model said about it. */
    private resources(files: readonly ChangedFile[], said: string): Resource[] {
        const resources = files.map((file): Resource => {
            const before = file.operation === 'create' ? undefined : (file.from ?? file.uri);
            return [file.uri, before, file.operation === 'delete' ? undefined : this.pages.putVersion(file.uri, 'proposed', file.written)];
        });
        return this.withSummary(resources, said);
    }

    private withSummary(resources: Resource[], said: string): Resource[] {
        if (said === '') {
            return resources;
        }
        const page = this.pages.put('Summary.md', said);
        return [[page, undefined, page], ...resources];
    }

    /** Shows all undecided changes in one editor, with the model's answer and the outcome of the tests above them. */
    private async show(): Promise<void> {
        if (this.questions.reopen()) {
            return;
        }
        const { files, newest } = this.changes;
        if (files.length === 0 || newest === undefined) {
            void window.showInformationMessage('There are no changes to review.');
            return;
        }
        const resources = files.map((file): Resource => {
            const before = file.operation === 'create' ? undefined : this.former(file);
            return [file.uri, before, file.operation === 'delete' ? undefined : file.uri];
        });
        const said = summaryOf(newest.text, newest.tests);
        const count = files.reduce((sum, file) => sum + file.hunks.length, 0);
        await commands.executeCommand('vscode.changes', titleOf(newest.label, count, said), this.withSummary(resources, said));
    }

    private async compare(file: ChangedFile, hunk: Hunk): Promise<void> {
        const document = await workspace.openTextDocument(file.uri);
        const name = nameOf(file.uri.toString());
        const options = { selection: lineRangeOf(hunk, document) };
        await commands.executeCommand('vscode.diff', this.former(file), file.uri, `${name}: before ↔ now`, options);
    }

    private former(file: ChangedFile): Uri {
        return this.pages.putVersion(file.uri, `before ${file.turn.label}`, file.before);
    }

    /** Runs an action on the named hunk, or on the one at the cursor. */
    private at(given: HunkArgument | undefined, run: (file: ChangedFile, hunk: Hunk) => unknown): unknown {
        const editor = window.activeTextEditor;
        const files = given === undefined ? (editor === undefined ? [] : this.changes.in(editor.document.uri)) : this.changes.in(Uri.parse(given.uri));
        for (const file of files) {
            for (const hunk of file.hunks) {
                const isMeant =
                    given === undefined
                        ? editor !== undefined && isAt(editor, hunk)
                        : hunk.number === given.number && file.turn.label === given.turn;
                if (isMeant) {
                    return run(file, hunk);
                }
            }
        }
        return window.setStatusBarMessage('thinklsp: there is no change here.', 3_000);
    }

    private here(given: string | undefined): ChangedFile[] {
        const uri = given === undefined ? window.activeTextEditor?.document.uri : Uri.parse(given);
        return uri === undefined ? [] : this.changes.in(uri);
    }

    /** Moves the cursor to the next or previous change, in this file or in another one. */
    private async go(step: 1 | -1): Promise<void> {
        const places = await this.places();
        if (places.length === 0) {
            void window.setStatusBarMessage('thinklsp: there are no changes.', 3_000);
            return;
        }
        const editor = window.activeTextEditor;
        const uri = editor?.document.uri.toString() ?? '';
        const line = editor?.selection.active.line ?? -1;
        const isPast = (place: { uri: Uri; range: Range }) =>
            place.uri.toString() === uri ? Math.sign(place.range.start.line - line) === step : false;
        const own = places.filter(isPast);
        const others = places.filter(place => place.uri.toString() !== uri);
        const ordered = step === 1 ? [...own, ...others, ...places] : [...places, ...others, ...own].reverse();
        const [next] = ordered;
        if (next !== undefined) {
            const shown = await window.showTextDocument(next.uri);
            shown.selection = new Selection(next.range.start, next.range.start);
            shown.revealRange(next.range, TextEditorRevealType.InCenterIfOutsideViewport);
        }
    }

    private async places(): Promise<{ uri: Uri; range: Range }[]> {
        const found = [];
        for (const file of this.changes.files.filter(one => one.operation !== 'delete')) {
            const document = await workspace.openTextDocument(file.uri);
            found.push(...file.hunks.map(hunk => ({ uri: file.uri, range: lineRangeOf(hunk, document) })));
        }
        return found;
    }

    private counted(): string {
        const { files } = this.changes;
        const hunks = files.reduce((sum, file) => sum + file.hunks.length, 0);
        return countChanges(hunks, new Set(files.map(file => file.uri.toString())).size);
    }

    private draw(): void {
        const { files, newest } = this.changes;
        if (files.length === 0 || newest === undefined) {
            this.item.hide();
            return;
        }
        this.item.text = `$(diff) ${this.counted()}`;
        this.item.tooltip = [newest.label, plainLine(newest.text), newest.tests, 'Click to review the changes.'].filter(Boolean).join('\n');
        this.item.accessibilityInformation = { label: `thinklsp: ${this.counted()} to review`, role: 'button' };
        this.item.command = SHOW;
        this.item.show();
    }
}

function isAt(editor: TextEditor, hunk: Hunk): boolean {
    const range = lineRangeOf(hunk, editor.document);
    const { line } = editor.selection.active;
    return range.start.line <= line && line <= range.end.line;
}

async function choose(hunks: readonly Proposed[]): Promise<readonly Proposed[] | undefined> {
    return window.showQuickPick(hunks, {
        canPickMany: true,
        ignoreFocusOut: true,
        title: 'thinklsp: changes to keep',
        placeHolder: 'The checked changes are written. The others wait under “apply”.',
        matchOnDetail: true,
        matchOnDescription: true,
    });
}

/** Closes the editor with the proposed changes. The editor adds the number of files to its label. */
async function closeTab(title: string): Promise<void> {
    const tabs = window.tabGroups.all.flatMap(group => group.tabs);
    await window.tabGroups.close(tabs.filter(tab => tab.label.startsWith(title)));
}

/** Returns a row for each hunk of a proposed edit. */
function listHunks(files: readonly ChangedFile[], reasons: ReviewParams['reasons']): Proposed[] {
    const because = new Map(reasons.map(reason => [`${reason.uri} ${reason.hunk}`, reason.reason]));
    return files.flatMap(file => {
        const uri = file.sentUri;
        const name = nameOf(uri);
        let [line, at] = [1, 0];
        return file.hunks.map(hunk => {
            const row = { uri, hunk: hunk.number, description: because.get(`${uri} ${hunk.number}`), picked: true };
            if (file.operation === 'create') {
                return { ...row, label: `$(diff-added) ${name}`, detail: 'New file' };
            }
            if (isWhole(hunk)) {
                return file.operation === 'delete'
                    ? { ...row, label: `$(diff-removed) ${name}`, detail: 'Delete the file' }
                    : { ...row, label: `$(diff-renamed) ${name}`, detail: `Rename to ${nameOf(file.uri.toString())}` };
            }
            line += file.written.slice(at, hunk.start).split('\n').length - 1;
            at = hunk.start;
            const added = file.written.slice(hunk.start, hunk.end).split('\n');
            const detail = added.find(text => text.trim() !== '')?.trim() ?? 'Remove lines';
            return { ...row, label: `$(diff-modified) ${name}:${line}`, detail };
        });
    });
}

/** Returns the last message that a running turn has written so far. */
function lastMessage(running: Running | undefined): string {
    let text = '';
    running?.onEvent(event => {
        if (event.kind === 'text') {
            text += event.delta;
        } else if (event.kind === 'tool' || event.kind === 'restart') {
            text = '';
        }
    }).dispose();
    return text;
}

/** Returns the title of the multi-diff editor, which appends the number of its files: the summary counts as one. */
function titleOf(label: string, changes: number, said: string): string {
    return `${label} – ${said === '' ? '' : 'summary and '}${changes} ${changes === 1 ? 'change' : 'changes'}`;
}

function countOf(hunks: readonly Proposed[]): string {
    return countChanges(hunks.length, new Set(hunks.map(hunk => hunk.uri)).size);
}
