/** What work-done progress says about all running turns, as one thing to show. */

import { type Event, EventEmitter } from 'vscode';
import type { WorkDone } from './turns';

export type Look =
    | { kind: 'idle' }
    | { kind: 'thinking'; phase: string; elapsed: string; tokens: string }
    | { kind: 'waiting' }
    | { kind: 'error'; sentence: string };

const IDLE: Look = { kind: 'idle' };
const ELAPSED = /^(\d+ min )?\d+ s$/;
const TOKENS = /^([\d,]+) tokens$/;
// How the end of a progress begins when the turn has not failed; all else is a sentence that says why it did.
const OUTCOME = /^(done|cancelled|refusal|max tokens|max steps|budget|context window)\b/;

export class Looks {
    private readonly running = new Map<string | number, Look>();
    private readonly changed = new EventEmitter<Look>();
    private trouble: Look = IDLE;

    readonly onDidChange: Event<Look> = this.changed.event;

    /** The newest running turn that waits for the user, else the newest; without one the last trouble. */
    get now(): Look {
        const newest = [...this.running.values()].reverse();
        return newest.find(look => look.kind === 'waiting') ?? newest[0] ?? this.trouble;
    }

    show(token: string | number, value: WorkDone): void {
        if (value.kind === 'end') {
            this.running.delete(token);
            const said = value.message ?? '';
            this.trouble = said === '' || OUTCOME.test(said) ? IDLE : { kind: 'error', sentence: said };
        } else {
            this.running.set(token, looked(value.kind === 'begin' ? 'starting' : (value.message ?? '')));
        }
        this.changed.fire(this.now);
    }

    /** The answer has come: whatever its progress said last, it has ended. */
    forget(token: string | number): void {
        if (this.running.delete(token)) {
            this.changed.fire(this.now);
        }
    }

    lost(sentence: string): void {
        this.running.clear();
        this.trouble = sentence === '' ? IDLE : { kind: 'error', sentence };
        this.changed.fire(this.now);
    }

    dispose(): void {
        this.changed.dispose();
    }
}

/** `thinking · 3 s · 1,204 tokens`, where what does not count is left out. */
function looked(message: string): Look {
    const [phase = '', ...rest] = message.split(' · ');
    if (phase === 'waiting for you') {
        return { kind: 'waiting' };
    }
    return {
        kind: 'thinking',
        phase,
        elapsed: rest.find(part => ELAPSED.test(part)) ?? '',
        tokens: rest.map(part => TOKENS.exec(part)?.[1]).find(found => found !== undefined) ?? '',
    };
}
