/** The files that a turn changed, or wants to change. */

import type { ChangedFile, Edits } from '../src/chat/messages';
import { button, element, icon } from './dom';

export interface EditActs {
    file(uri: string): void;
    diff(turnId: string, uri: string): void;
    apply(turnId: string): void;
}

const STATES: Record<ChangedFile['status'], string> = {
    applied: '',
    some: 'partly applied',
    conflict: 'conflict',
    refused: 'not applied',
    held: 'not applied',
    unknown: 'perhaps applied',
};

export function editsShown(edits: Edits, turnId: string, acts: EditActs): HTMLElement {
    const waiting = edits.files.filter(file => file.status !== 'applied');
    const head = element('div', { class: 'edits-head' }, element('span', { class: 'line' }, summed(edits, waiting.length)));
    if (waiting.length > 0) {
        head.append(button({ text: 'Apply', class: 'primary' }, () => acts.apply(turnId)));
    }
    const rows = edits.files.map(file => row(file, turnId, acts));
    return element('section', { class: 'edits', 'aria-label': 'Changed files' }, head, element('ul', {}, ...rows));
}

function summed(edits: Edits, waiting: number): string {
    const files = (count: number): string => (count === 1 ? '1 file' : `${count} files`);
    const done = edits.files.length - waiting;
    if (waiting === 0) {
        return `Changed ${files(done)}`;
    }
    return done === 0 ? `A change of ${files(waiting)} waits` : `Changed ${files(done)}, ${files(waiting)} left`;
}

function row(file: ChangedFile, turnId: string, acts: EditActs): HTMLElement {
    const path = decoded(file.uri);
    const name = path.slice(path.lastIndexOf('/') + 1);
    const open = button({ text: name, icon: 'file', class: 'file' }, () => acts.file(file.uri));
    open.title = path;
    const state = STATES[file.status];
    const line = element('div', { class: 'edit-line' }, open, state && element('span', { class: 'state' }, state));
    if (file.status !== 'applied') {
        line.append(button({ text: 'Diff', label: `Diff of ${name}` }, () => acts.diff(turnId, file.uri)));
    }
    const reason = file.status !== 'applied' && file.reason;
    return element('li', {}, line, reason && element('div', { class: 'reason' }, icon('info'), sentence(reason)));
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
