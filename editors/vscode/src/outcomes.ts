/** Tells the user how a turn ended: edits that were not applied, or a text instead of an edit. */

import { CodeActionTriggerKind, Range, Uri, window, workspace } from 'vscode';
import type { CodeAction, TextEdit, WorkspaceEdit } from 'vscode-languageclient/node';
import type { Client } from './client';
import type { Pages } from './pages';
import type { Applied, EditedFile, TurnResult } from './protocol';
import { nameOf, plainLine } from './review/words';
import { inform, told, warn } from './said';
import type { Turns } from './turns';

const APPLY = 'Apply';
const DISCARD = 'Discard';
const DIFF = 'Show diff';
const READ = 'Read Answer';
const SHORT = 160;
/** The server's reason for a change that the editor did not apply. */
const WAITING = 'it is waiting to be applied';
/** The server's reasons for changes that the user did not keep in the review. */
const DECLINED = /^(you kept \d|you did not keep|not confirmed)/;

export class Outcomes {
    constructor(
        private readonly turns: Turns,
        private readonly pages: Pages,
        private readonly connect: () => Promise<Client>,
    ) {}

    /** `uri`: the document that the turn was started for. */
    async tell(result: TurnResult, uri?: string): Promise<void> {
        if (result.edits === null) {
            if (result.stopReason === 'end_turn' && result.text.trim() !== '') {
                await this.tellText(result);
            }
            return;
        }
        if (result.edits.applied !== 'all') {
            await this.offer(result.turnId, result.edits.files, uri);
        }
    }

    async tellApplied(applied: Applied): Promise<void> {
        if (applied.applied !== 'all') {
            await shown(applied.files);
        }
    }

    private async offer(turnId: string, files: EditedFile[], uri?: string): Promise<void> {
        const left = files.filter(file => file.status !== 'applied');
        if (left.every(file => DECLINED.test(file.reason ?? ''))) {
            return;
        }
        const chosen = await shown(files, APPLY, DIFF, DISCARD);
        if (chosen === APPLY) {
            const applied = await told(() => this.turns.ask<Applied>('thinklsp.apply', { turnId }));
            if (applied !== undefined) {
                await this.tellApplied(applied);
            }
        } else if (chosen === DISCARD) {
            await told(() => this.turns.ask('thinklsp.discard', { turnId }));
        } else if (chosen === DIFF) {
            const first = left.find(file => file.uri === uri) ?? left[0];
            await told(() => this.compare(turnId, first?.uri ?? uri ?? ''));
            await this.offer(turnId, files, uri);
        }
    }

    /** Shows the difference between a file and the proposal. */
    async compare(turnId: string, uri: string): Promise<void> {
        const client = await this.connect();
        const target = client.protocol2CodeConverter.asUri(uri);
        // A file that the turn creates does not exist yet.
        const document = await workspace.openTextDocument(target).then(undefined, () => undefined);
        const start = { line: 0, character: 0 };
        const actions = await client.sendRequest<CodeAction[] | null>('textDocument/codeAction', {
            textDocument: { uri: client.code2ProtocolConverter.asUri(target) },
            range: { start, end: start },
            context: {
                diagnostics: [],
                only: ['refactor.rewrite.thinklsp.apply'],
                triggerKind: CodeActionTriggerKind.Invoke,
            },
        });
        const held = actions?.find(action => isApply(action, turnId));
        if (held?.edit !== undefined && isDeleted(held.edit, target)) {
            return this.pages.compare(target, nameOf(uri), '');
        }
        const edits = held?.edit === undefined ? [] : editsOf(held.edit, target);
        if (edits.length === 0) {
            throw new Error(`No difference to show for ${nameOf(uri)}.`);
        }
        if (document === undefined) {
            const text = edits.map(edit => edit.newText).join('');
            return this.pages.compare(this.pages.putVersion(target, 'before', ''), nameOf(uri), text);
        }
        const changes = (await client.protocol2CodeConverter.asTextEdits(edits)).map(edit => ({
            from: document.offsetAt(edit.range.start),
            to: document.offsetAt(edit.range.end),
            text: edit.newText,
        }));
        let text = document.getText(new Range(0, 0, document.lineCount, 0));
        for (const change of changes.sort((one, other) => other.from - one.from)) {
            text = text.slice(0, change.from) + change.text + text.slice(change.to);
        }
        await this.pages.compare(target, nameOf(uri), text);
    }

    private async tellText(result: TurnResult): Promise<void> {
        // Notifications cannot show Markdown.
        if ((await window.showInformationMessage(plainLine(result.text, SHORT), READ)) === READ) {
            await this.pages.read('thinklsp.md', result.text);
        }
    }
}

/** Shows a warning only for files that failed; changes that the user left out are pending and need none. */
function shown(files: EditedFile[], ...choices: string[]): Thenable<string | undefined> {
    const others = files.filter(file => file.status !== 'applied' && !isWaiting(file));
    const show = others.length > 0 ? warn : inform;
    return show([...waiting(files), ...others.map(why)].join(' '), ...choices);
}

function waiting(files: EditedFile[]): string[] {
    const left = files.filter(isWaiting);
    if (left.length === 0) {
        return [];
    }
    const names = left.map(file => nameOf(file.uri));
    const listed = names.length > 1 ? `${names.slice(0, -1).join(', ')} and ${names.at(-1)} are` : `${names[0]} is`;
    const changed = files.filter(file => file.status === 'applied' || file.hunks.applied > 0).length;
    const count = changed === 0 ? 'Nothing was changed' : `${changed} of ${files.length} file${files.length > 1 ? 's' : ''} changed`;
    const reasons = new Set(left.filter(file => file.reason !== WAITING && file.status === 'refused').map(why));
    return [`${count}; ${listed} waiting.`, ...reasons];
}

function isWaiting(file: EditedFile): boolean {
    return file.status === 'some' || file.status === 'refused';
}

function why(file: EditedFile): string {
    return `${nameOf(file.uri)} was not changed: ${file.reason ?? file.status}.`;
}

function isApply(action: CodeAction, turnId: string): boolean {
    const [given] = (action.command?.arguments ?? []) as { turnId?: string }[];
    return action.command?.command === 'thinklsp.apply' && given?.turnId === turnId;
}

function isDeleted(edit: WorkspaceEdit, uri: Uri): boolean {
    const changes = edit.documentChanges ?? [];
    return changes.some(change => 'kind' in change && change.kind === 'delete' && Uri.parse(change.uri).path === uri.path);
}

function editsOf(edit: WorkspaceEdit, uri: Uri): TextEdit[] {
    const path = uri.path;
    const found: TextEdit[] = [];
    for (const change of edit.documentChanges ?? []) {
        if ('textDocument' in change && Uri.parse(change.textDocument.uri).path === path) {
            found.push(...(change.edits as TextEdit[]));
        }
    }
    for (const [changed, edits] of Object.entries(edit.changes ?? {})) {
        if (Uri.parse(changed).path === path) {
            found.push(...edits);
        }
    }
    return found;
}
