/** The changes of turns that the user has neither kept nor undone yet, with the commands that do so. */

import {
    CancellationTokenSource,
    type Disposable,
    type Event,
    EventEmitter,
    Range,
    type TextDocument,
    type Uri,
    WorkspaceEdit,
    commands,
    window,
    workspace,
} from 'vscode';
import type {
    ApplyWorkspaceEditParams,
    ApplyWorkspaceEditRequest,
    ApplyWorkspaceEditResult,
    ResponseError,
    WorkspaceEdit as SentEdit,
} from 'vscode-languageclient/node';
import type { Client } from '../client';
import type { EditedFile } from '../protocol';
import { warn } from '../said';
import {
    type ChangedBy,
    type ChangedFile,
    type UndoStep,
    buildUndo,
    findWritten,
    isAsCreated,
    isWhole,
    newFile,
    newTurn,
    prepareMarked,
} from './changed-files';
import { type Hunk, type Replacement, findDifference, findLost, moveHunk, placeHunks, touches } from './hunks';
import { applyAroundSaves, finishSave, isApplied } from './saving';
import { nameOf } from './words';

const UNDO = 'thinklsp: undo: ';
/** The turn id of edits that are not the server's: code of an answer that the user applied. */
const OWN = '';

interface Decision {
    kept: number[];
    undone: number[];
}

export class Changes implements Disposable {
    private readonly turns: ChangedBy[] = [];
    private readonly claimed = new Map<string, readonly ChangedFile[]>();
    private readonly decisions = new Map<ChangedBy, Map<string, Decision>>();
    private readonly changed = new EventEmitter<void>();
    private readonly subscriptions: Disposable[];
    private reviewed: string | undefined;
    private applying = false;

    /** Fires when a hunk appears, moves or goes. */
    readonly onDidChange: Event<void> = this.changed.event;

    constructor(private readonly connect: () => Promise<Client>) {
        this.subscriptions = [
            this.changed,
            workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
                const edits = contentChanges.map(({ rangeOffset, rangeLength, text }) => ({
                    start: rangeOffset,
                    end: rangeOffset + rangeLength,
                    text,
                }));
                if (edits.length > 0) {
                    this.move(document, edits);
                }
            }),
            workspace.onDidOpenTextDocument(document => this.sync(document)),
            workspace.onDidDeleteFiles(({ files }) => this.forget(files)),
            workspace.onDidRenameFiles(({ files }) => this.follow(files)),
        ];
    }

    /** All files with undecided hunks, those of the newest turn last. */
    get files(): ChangedFile[] {
        return this.turns.flatMap(turn => turn.files);
    }

    get newest(): ChangedBy | undefined {
        return this.turns.at(-1);
    }

    /** The ids of all turns of this window that changed files. */
    get turnIds(): Iterable<string> {
        return this.claimed.keys();
    }

    /** All files that a turn changed, also those that the user has decided on. */
    of(turnId: string): readonly ChangedFile[] {
        return this.claimed.get(turnId) ?? [];
    }

    in(uri: Uri): ChangedFile[] {
        const spelled = uri.toString();
        return this.files.filter(file => file.operation !== 'delete' && file.uri.toString() === spelled);
    }

    /** Updates the context of key bindings and menus after another editor became active. */
    look(): void {
        const here = window.activeTextEditor?.document.uri;
        void commands.executeCommand('setContext', 'thinklsp.hasChanges', this.files.length > 0);
        void commands.executeCommand('setContext', 'thinklsp.hasChangesHere', here !== undefined && this.in(here).length > 0);
    }

    /** The next edit with this label was reviewed before it was sent, so that it gets no marks. */
    expectReviewed(label: string): void {
        this.reviewed = label;
    }

    /** Applies an edit of the server and marks its hunks. */
    async apply(
        params: ApplyWorkspaceEditParams,
        next: ApplyWorkspaceEditRequest.HandlerSignature,
    ): Promise<ApplyWorkspaceEditResult | ResponseError> {
        const { token } = new CancellationTokenSource();
        const label = params.label ?? '';
        const reviewed = this.reviewed === label;
        this.reviewed = undefined;
        const converter = (await this.connect()).protocol2CodeConverter;
        const asUri = (uri: string) => converter.asUri(uri);
        const write = async (edit: SentEdit) => next({ ...params, edit }, token);
        if (!label.startsWith('thinklsp: ') || label.startsWith(UNDO) || reviewed) {
            return applyAroundSaves(params.edit, asUri, write);
        }
        const turn = newTurn(label);
        const files = await prepareMarked(turn, params.edit, asUri);
        const answer = await applyAroundSaves(params.edit, asUri, edit => this.applyOne(() => write(edit)));
        if (isApplied(answer)) {
            this.mark(turn, await findWritten(files));
        }
        return answer;
    }

    /** Writes an edit that is not the server's, and marks it. Returns whether the editor applied it. */
    async write(document: TextDocument, place: Replacement, label: string, after: string): Promise<boolean> {
        const before = document.getText();
        const turn = newTurn(label, OWN);
        const { uri } = document;
        const edit = new WorkspaceEdit();
        edit.replace(uri, new Range(document.positionAt(place.start), document.positionAt(place.end)), place.text);
        const applied = await this.applyOne(() => workspace.applyEdit(edit).then(undefined, () => false));
        if (applied && document.getText() === after) {
            this.mark(turn, [{ ...newFile(turn, uri, before, after), hunks: placeHunks(before, [place]) }]);
        }
        return applied;
    }

    /** Connects the newest edit with its turn, whose result has arrived. */
    claim(turnId: string, files: readonly EditedFile[], text = '', tests = ''): void {
        const uris = new Set(files.map(file => decodeURIComponent(file.uri)));
        const isOf = (turn: ChangedBy) => turn.files.every(file => uris.has(decodeURIComponent(file.sentUri)));
        const turn = this.turns.findLast(one => one.turnId === undefined && isOf(one));
        if (turn !== undefined) {
            Object.assign(turn, { turnId, text, tests });
            this.claimed.set(turnId, turn.all);
            this.report(turn);
            this.update();
        }
    }

    /** Keeps hunks, by default all of the file. */
    keep(file: ChangedFile, hunks: readonly Hunk[] = file.hunks): void {
        this.decide(file, hunks, 'kept');
    }

    keepAll(): void {
        this.files.forEach(file => this.keep(file));
    }

    /** Undoes hunks, by default all of the file. Text that the user typed elsewhere stays, also in a file that the turn created. */
    async undo(file: ChangedFile, hunks: readonly Hunk[] = file.hunks): Promise<void> {
        const numbers = new Set(hunks.map(hunk => hunk.number));
        if (file.operation === 'create' && !(await isAsCreated(file))) {
            this.keep(file);
            void warn(`${nameOf(file.uri.toString())} was not deleted, because its text has changed.`);
            return;
        }
        if (file.operation === 'change' || file.operation === 'rename') {
            this.sync(await workspace.openTextDocument(file.uri));
        }
        const undone = file.hunks.filter(hunk => numbers.has(hunk.number));
        for (const step of await buildUndo(file, undone)) {
            if (!(await this.undoStep(file, step))) {
                return;
            }
        }
    }

    async undoAll(): Promise<void> {
        // The newest turn is undone first, because a later turn may have changed the text of an earlier one.
        for (const file of this.files.reverse()) {
            await this.undo(file);
        }
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    /** Undoes some hunks of a file. Returns whether the editor applied the edit. */
    private async undoStep(file: ChangedFile, { edit, hunks }: UndoStep): Promise<boolean> {
        if (hunks.every(isWhole) || file.operation === 'create') {
            await finishSave(file.uri);
        }
        const before = file.hunks;
        const numbers = new Set(hunks.map(hunk => hunk.number));
        file.hunks = before.filter(hunk => !numbers.has(hunk.number));
        const isDone = await this.applyOne(() => workspace.applyEdit(edit));
        if (isDone) {
            this.decide(file, hunks, 'undone');
        } else {
            file.hunks = before;
        }
        return isDone;
    }

    /** Applies an edit, whose changes of the text are not the user's. */
    private async applyOne<T>(apply: () => Thenable<T>): Promise<T> {
        this.applying = true;
        try {
            return await apply();
        } finally {
            this.applying = false;
        }
    }

    private mark(turn: ChangedBy, files: ChangedFile[]): void {
        turn.files = files;
        turn.all = files;
        if (files.length > 0) {
            this.turns.push(turn);
            this.update();
        }
    }

    private move(document: TextDocument, edits: readonly Replacement[]): void {
        const files = this.in(document.uri);
        if (files.length === 0) {
            return;
        }
        const text = document.getText();
        let isRestored = false;
        for (const file of files) {
            // Later edits of the server replace the marks of the lines that they change.
            const covered = this.applying ? file.hunks.filter(hunk => edits.some(edit => touches(hunk, edit))) : [];
            // The changes of one event are ordered from the end of the text to its beginning.
            file.hunks = file.hunks.map(hunk => edits.reduce(moveHunk, hunk));
            file.now = text;
            const isGone = (hunk: Hunk) => !isWhole(hunk) && text.slice(hunk.start, hunk.end) === hunk.before;
            const numbers = new Set(covered.map(hunk => hunk.number));
            if (!this.applying) {
                // Reverting a file restores the text before a turn, and so also before all later turns.
                isRestored ||= file.operation === 'change' && file.before === text;
                this.decide(file, file.hunks.filter(hunk => isRestored || (isGone(hunk) && file.operation === 'change')), 'undone');
                this.decide(file, findLost(file.hunks), 'kept');
            } else if (numbers.size > 0) {
                this.decide(file, file.hunks.filter(hunk => numbers.has(hunk.number)), 'kept');
            }
        }
        this.changed.fire();
    }

    /** Moves the marks in a file that was changed while it was closed. Marks in changed lines go. */
    private sync(document: TextDocument): void {
        const text = document.getText();
        for (const file of this.in(document.uri).filter(one => one.now !== text)) {
            const change = findDifference(file.now, text);
            const numbers = new Set(file.hunks.filter(hunk => change.start <= hunk.end && change.end >= hunk.start).map(hunk => hunk.number));
            file.hunks = file.hunks.map(hunk => moveHunk(hunk, change));
            file.now = text;
            this.decide(file, file.hunks.filter(hunk => numbers.has(hunk.number)), file.before === text ? 'undone' : 'kept');
        }
    }

    /** Moves the marks of a file that the user renamed. */
    private follow(renamed: readonly { oldUri: Uri; newUri: Uri }[]): void {
        for (const { oldUri, newUri } of renamed) {
            this.in(oldUri).forEach(file => (file.uri = newUri));
        }
        this.update();
    }

    private forget(uris: readonly Uri[]): void {
        const spelled = new Set(uris.map(String));
        for (const file of this.files.filter(one => one.operation !== 'delete' && spelled.has(one.uri.toString()))) {
            this.decide(file, file.hunks, 'undone');
        }
    }

    private decide(file: ChangedFile, hunks: readonly Hunk[], how: keyof Decision): void {
        if (hunks.length === 0) {
            return;
        }
        const { turn } = file;
        const decisions = this.decisions.get(turn) ?? new Map<string, Decision>();
        const decision = decisions.get(file.sentUri) ?? { kept: [], undone: [] };
        decision[how].push(...hunks.map(hunk => hunk.number));
        this.decisions.set(turn, decisions.set(file.sentUri, decision));
        file[how] += hunks.length;
        const numbers = new Set(hunks.map(hunk => hunk.number));
        file.hunks = file.hunks.filter(hunk => !numbers.has(hunk.number));
        turn.files = turn.files.filter(one => one.hunks.length > 0);
        if (turn.files.length === 0 && turn.turnId !== undefined) {
            this.turns.splice(this.turns.indexOf(turn), 1);
        }
        this.report(turn);
        this.update();
    }

    /** Sends the decisions of the user to the server, if the turn is known. */
    private report(turn: ChangedBy): void {
        const decisions = this.decisions.get(turn);
        if (turn.turnId === undefined || decisions === undefined) {
            return;
        }
        this.decisions.delete(turn);
        if (turn.turnId === OWN) {
            return;
        }
        const files = [...decisions].map(([uri, decision]) => ({ uri, ...decision }));
        const params = { turnId: turn.turnId, files };
        this.connect().then(
            client => client.sendNotification('thinklsp/editor/kept', params),
            () => undefined,
        );
        if (turn.files.length === 0 && this.turns.includes(turn)) {
            this.turns.splice(this.turns.indexOf(turn), 1);
        }
    }

    private update(): void {
        this.look();
        this.changed.fire();
    }
}
