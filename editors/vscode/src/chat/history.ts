/** Converts a session that the server exported into turns to show. Pure functions. */

import { type ChangedFile, type Exported, type Part, type Turn, isExported, isPlan } from './messages';
import { isRecord } from './shape';
import { PLAN } from './turn';

type PlanEntries = Turn['plan'];
type Unanswered = NonNullable<Exported['unanswered']>[number];

// The diagnostics that `@diagnostics` was replaced with.
const DIAGNOSTICS = /\n\nDiagnostics of [^\n]*:\n(?:- line [^\n]*(?:\n|$))+/;

interface ToolDetails {
    input: string;
    output: string;
}

/** A turn as the server stored it. */
export interface StoredTurn extends Turn {
    /** The number of steps of the session before the prompt. */
    step: number;
    /** The places that were sent with the prompt, such as `src/app.py:3-9`. */
    references: readonly string[];
}

export interface History {
    title: string;
    turns: StoredTurn[];
    /** Tool results by the id of their call. */
    tools: Map<string, ToolDetails>;
}

export const EMPTY: History = { title: '', turns: [], tools: new Map() };

/** Parses a session exported as JSON by `thinklsp.sessions`; returns an empty history for any other text. */
export function history(exported: string): History {
    const value = parsed(exported);
    if (!isExported(value)) {
        return EMPTY;
    }
    const reader = new Reader(value);
    value.messages.forEach((message, at) => {
        reader.unanswered(at);
        reader.message(message.role, message.blocks.filter(isRecord));
    });
    reader.unanswered(value.messages.length);
    return { title: value.title, turns: reader.turns, tools: reader.tools };
}

class Reader {
    readonly turns: StoredTurn[] = [];
    readonly tools: History['tools'] = new Map();
    private parts: Part[] = [];
    /** The names of images, which precede the text of their prompt. */
    private images: string[] = [];
    private stepsLeft: number;

    constructor(private readonly exported: Exported) {
        // Counted from the end, because a repair can have removed steps.
        this.stepsLeft = exported.messages.filter(({ role }) => role === 'assistant').length;
    }

    /** Adds the prompts without an answer, and the endings of turns that were stopped, that came before a message. */
    unanswered(message: number): void {
        const here = (this.exported.unanswered ?? []).filter(one => one.messages === message && one.outcome !== 'queued');
        for (const one of here) {
            const isEnding = one.text === '';
            const at = isEnding
                ? this.turns.findLastIndex(({ turnId }) => turnId === one.turn)
                : this.begin(one.text, one.turn, one.references);
            const turn = this.turns[at];
            if (turn !== undefined) {
                this.turns[at] = { ...turn, stopReason: STOP_REASONS[one.outcome] ?? one.outcome, parts: ended(turn.parts, one) };
            }
        }
    }

    message(role: string, blocks: Record<string, unknown>[]): void {
        this.stepsLeft -= role === 'assistant' ? 1 : 0;
        for (const block of blocks) {
            const { kind, text, turn, name } = block;
            if (kind === 'image' && typeof name === 'string') {
                this.images.push(name);
            } else if (kind === 'text' && role === 'user' && typeof text === 'string') {
                this.begin(text, typeof turn === 'string' ? turn : '');
            } else {
                if (kind === 'tool_result') {
                    // The images before the results came from tools, not from the next prompt.
                    this.images = [];
                }
                this.take(block);
            }
            const plan = planOf(block);
            const last = this.turns.at(-1);
            if (plan !== undefined && last !== undefined) {
                this.turns[this.turns.length - 1] = { ...last, plan };
            }
        }
    }

    /** Adds a turn; returns its number. */
    private begin(said: string, turnId: string, own?: readonly string[] | null): number {
        const facts = this.exported.turns?.find(one => one.turnId === turnId);
        const files = [
            ...(facts?.files ?? []).map(uri => changed(uri, 'applied')),
            ...(facts?.undone ?? []).map(uri => changed(uri, 'undone')),
        ];
        const references = own ?? facts?.references ?? [];
        this.parts = [];
        const images = this.images.splice(0);
        return this.turns.push({
            prompt: said.replace(DIAGNOSTICS, '').trim(),
            attachments: [...references.map(place => place.slice(place.lastIndexOf('/') + 1)), ...images],
            parts: this.parts,
            plan: [],
            usage: facts?.usage ?? null,
            turnId: turnId || null,
            stopReason: null,
            stepParts: [],
            edits: files.length === 0 ? null : { applied: 'all', files, proposalId: null },
            running: false,
            step: this.exported.steps - this.stepsLeft,
            references,
        }) - 1;
    }

    private take({ kind, id, name, input, text, is_error: isError }: Record<string, unknown>): void {
        if (kind === 'text' && typeof text === 'string' && text.trim() !== '') {
            this.parts.push({ kind: 'text', text });
        } else if (kind === 'tool_use' && typeof id === 'string' && typeof name === 'string' && name !== PLAN) {
            this.parts.push({ kind: 'tool', id, name, title: title(name, input), status: 'completed' });
            this.tools.set(id, { input: shown(input), output: '' });
        } else if (kind === 'tool_result' && typeof id === 'string' && typeof text === 'string') {
            this.tools.set(id, { input: this.tools.get(id)?.input ?? '', output: text });
            const at = this.parts.findLastIndex(part => part.kind === 'tool' && part.id === id);
            const call = this.parts[at];
            if (call?.kind === 'tool' && isError === true) {
                this.parts[at] = { ...call, status: 'failed' };
            }
        }
    }
}

/** The server's outcomes of prompts that are not stop reasons of turns. */
const STOP_REASONS: Record<string, string> = { running: 'cancelled', interrupted: 'cancelled' };

function ended(parts: readonly Part[], { partial, outcome, reason }: Unanswered): Part[] {
    return [
        ...parts,
        ...(partial ? [{ kind: 'text', text: partial } as const] : []),
        ...(outcome === 'error' && reason !== '' ? [{ kind: 'notice', level: 'error', text: reason } as const] : []),
    ];
}

function changed(uri: string, status: 'applied' | 'undone'): ChangedFile {
    return { uri, status, hunks: { applied: 1, waiting: 0 }, reason: null };
}

function planOf({ kind, name, input }: Record<string, unknown>): PlanEntries | undefined {
    const entries = kind === 'tool_use' && name === PLAN && isRecord(input) ? input['entries'] : undefined;
    return isPlan(entries) ? entries : undefined;
}

/** Formats a tool call as the server shows it while it runs: `read src/app.py`. */
function title(name: string, input: unknown): string {
    const verb = name.split('_')[0] ?? name;
    const given = isRecord(input) ? input : {};
    const object = given['path'] ?? given['pattern'] ?? given['question'];
    return typeof object === 'string' ? `${verb} ${object}` : verb;
}

function shown(input: unknown): string {
    return input === undefined || input === null ? '' : JSON.stringify(input, null, 2);
}

function parsed(text: string): unknown {
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}
