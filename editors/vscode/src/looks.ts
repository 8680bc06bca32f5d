/** Combines the work-done progress of all running turns into one state to show. */

import { type Event, EventEmitter } from 'vscode';
import type { WorkDone } from './turns';

export type Look =
    | { kind: 'idle' }
    /** `cause` says why the server repeats a call to the model. */
    | { kind: 'thinking'; phase: string; elapsed: string; tokens: string; cause: string }
    | { kind: 'waiting' }
    | { kind: 'error'; sentence: string };

const IDLE: Look = { kind: 'idle' };
const RETRYING = 'retrying';
const ELAPSED = /^(\d+ min )?\d+ s$/;
const TOKENS = /^([\d,]+) tokens$/;
// Final progress messages of turns that did not fail. Any other final message is an error message.
const OUTCOME = /^(done|cancelled|refusal|max tokens|max steps|budget|context window)\b/;

export class Looks {
    private readonly running = new Map<string | number, Look>();
    private readonly changed = new EventEmitter<Look>();
    private trouble: Look = IDLE;

    readonly onDidChange: Event<Look> = this.changed.event;

    /** The newest turn that is waiting for the user, else the newest running turn, else the last error. */
    get now(): Look {
        const newest = [...this.running.values()].reverse();
        // A prompt that waits for a running turn says nothing about that turn.
        const isWorking = (look: Look) => look.kind === 'thinking' && look.phase !== 'queued';
        return newest.find(look => look.kind === 'waiting') ?? newest.find(isWorking) ?? newest[0] ?? this.trouble;
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

    /** Removes a turn whose response has arrived, even if its progress has not ended. */
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

/** Formats progress as `Thinking · 3 s · 1,204 tokens`, or as `Retrying, 2 of 4, in 8 s · The provider is overloaded`. */
export function statusText(look: Look): string {
    if (look.kind === 'waiting') {
        return 'Waiting for you';
    }
    if (look.kind !== 'thinking') {
        return '';
    }
    const phase = look.phase.charAt(0).toUpperCase() + look.phase.slice(1);
    const figures = look.cause === '' ? [look.elapsed, look.tokens && `${look.tokens} tokens`] : [look.cause];
    return [phase, ...figures].filter(Boolean).join(' · ');
}

/** Parses a progress message such as `thinking · 3 s · 1,204 tokens`, in which each figure is optional. */
function looked(message: string): Look {
    const [phase = '', ...rest] = message.split(' · ');
    if (phase === 'waiting for you') {
        return { kind: 'waiting' };
    }
    return {
        kind: 'thinking',
        phase,
        elapsed: rest.find(part => ELAPSED.test(part)) ?? '',
        cause: phase.startsWith(RETRYING) ? (rest.findLast(part => !ELAPSED.test(part) && !TOKENS.test(part)) ?? '') : '',
        tokens: rest.map(part => TOKENS.exec(part)?.[1]).find(found => found !== undefined) ?? '',
    };
}
