/** The list of files that a turn changed or proposes to change. */

import type { ChangedFile, Decided, Edits } from '../src/chat/messages';
import { button, element, icon } from './dom';

export interface EditActs {
    file(uri: string): void;
    diff(turnId: string, uri: string): void;
    apply(turnId: string): void;
    discard(turnId: string): void;
    decide(turnId: string, uri: string | null, how: 'keep' | 'undo'): void;
}

const STATES: Record<ChangedFile['status'], string> = {
    applied: '',
    some: 'partly applied',
    conflict: 'conflict',
    refused: 'not applied',
    held: 'not applied',
    unknown: 'possibly applied',
    undone: 'undone',
    discarded: 'discarded',
};

/** `decided`: the files with marks in the editor, and what the user has kept and undone of them. */
export function editsShown(edits: Edits, turnId: string, decided: readonly Decided[], acts: EditActs): HTMLElement {
    const waiting = edits.files.filter(isWaiting);
    const head = element('div', { class: 'edits-head' }, element('span', { class: 'line' }, summed(edits, waiting.length)));
    const openFiles = decided.filter(({ open }) => open > 0).length;
    if (openFiles > 1) {
        head.append(
            button({ text: 'Undo All' }, () => acts.decide(turnId, null, 'undo')),
            button({ text: 'Keep All' }, () => acts.decide(turnId, null, 'keep')),
        );
    }
    if (waiting.length > 0) {
        head.append(
            button({ text: 'Apply', class: 'primary' }, () => acts.apply(turnId)),
            button({ text: 'Discard' }, () => acts.discard(turnId)),
        );
    }
    const rows = edits.files.map(file => row(file, turnId, decided.find(({ uri }) => decoded(uri) === decoded(file.uri)), acts));
    return element('section', { class: 'edits', 'aria-label': 'Changed files' }, head, element('ul', {}, ...rows));
}

function summed(edits: Edits, waiting: number): string {
    const files = (count: number): string => (count === 1 ? '1 file' : `${count} files`);
    const done = edits.files.length - waiting;
    if (waiting === 0) {
        return `Changed ${files(done)}`;
    }
    return done === 0 ? `Pending: ${files(waiting)}` : `Changed ${files(done)}, pending: ${files(waiting)}`;
}

function isWaiting({ status }: ChangedFile): boolean {
    return !['applied', 'undone', 'discarded'].includes(status);
}

function row(file: ChangedFile, turnId: string, decided: Decided | undefined, acts: EditActs): HTMLElement {
    const path = decoded(file.uri);
    const name = path.slice(path.lastIndexOf('/') + 1);
    const open = button({ text: name, icon: 'file', class: 'file' }, () => acts.file(file.uri));
    open.title = path;
    const state = STATES[file.status] || (decided === undefined ? '' : decision(decided));
    const line = element('div', { class: 'edit-line' }, open, element('span', { class: 'state' }, state));
    const isOpen = decided !== undefined && decided.open > 0;
    if (isWaiting(file) || (isOpen && decided.canCompare)) {
        line.append(button({ text: 'Diff', label: `Diff of ${name}` }, () => acts.diff(turnId, isOpen ? decided.uri : file.uri)));
    }
    if (isOpen) {
        line.append(
            button({ text: 'Undo', label: `Undo ${name}` }, () => acts.decide(turnId, decided.uri, 'undo')),
            button({ text: 'Keep', label: `Keep ${name}` }, () => acts.decide(turnId, decided.uri, 'keep')),
        );
    }
    const reason = isWaiting(file) && file.reason;
    return element('li', {}, line, reason && element('div', { class: 'reason' }, icon('info'), sentence(reason)));
}

function decision({ open, kept, undone }: Decided): string {
    if (open > 0) {
        return kept + undone === 0 ? '' : `${open} of ${open + kept + undone} open`;
    }
    return undone === 0 ? 'kept' : kept === 0 ? 'undone' : 'partly kept';
}

function sentence(reason: string): string {
    const whole = reason.charAt(0).toUpperCase() + reason.slice(1);
    return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function decoded(uri: string): string {
    try {
        return decodeURIComponent(uri);
    } catch {
        return uri;
    }
}
