/** One turn as the chat view shows it, and what each partial result of the server makes of it. Pure. */

import type { ChangedFile, Part, Partial, Turn, Usage } from './messages';

/** Shorter thoughts leave no line behind, unless there is something to read in them. */
const WORTH_A_LINE_MS = 1_000;
/** The tool by which the model shows its plan. */
export const PLAN = 'plan';

/** A turn that has just begun: the model thinks until it says otherwise. */
export function begun(prompt: string, attachments: readonly string[], now: number): Turn {
    const parts = [thought(now)];
    return {
        prompt,
        attachments,
        parts,
        stepParts: parts,
        plan: [],
        usage: null,
        turnId: null,
        stopReason: null,
        edits: null,
        running: true,
    };
}

export function taken(turn: Turn, value: Partial, now: number): Turn {
    const last = turn.parts.at(-1);
    switch (value.kind) {
        case 'text':
            if (last?.kind === 'text') return replaced(turn, { ...last, text: last.text + value.delta });
            return { ...turn, parts: [...settled(turn.parts, now), { kind: 'text', text: value.delta }] };
        case 'thinking':
            if (last?.kind === 'thinking') return replaced(turn, { ...last, text: last.text + value.delta });
            return { ...turn, parts: [...turn.parts, { ...thought(now), text: value.delta }] };
        case 'tool':
            return withTool(turn, value, now);
        case 'plan':
            return { ...turn, plan: value.entries };
        case 'usage':
            return { ...turn, usage: sum(turn.usage, value), stepParts: turn.parts };
        case 'notice':
            return { ...turn, parts: beforeThought(turn.parts, { kind: 'notice', level: value.level, text: value.text }) };
        case 'restart':
            return restarted(turn);
        case 'finished':
            return finished(turn, value, now);
    }
}

/** What `thinklsp.apply` did with an edit that had been held. */
export function applied(turn: Turn, files: readonly ChangedFile[]): Turn {
    if (turn.edits === null) return turn;
    const now = new Map(files.map((file) => [file.uri, file]));
    const merged = turn.edits.files.map((file) => now.get(file.uri) ?? file);
    const all = merged.every((file) => file.status === 'applied');
    const some = merged.some((file) => file.status === 'applied' || file.status === 'some');
    const whole = all ? 'all' : some ? 'some' : 'none';
    return { ...turn, edits: { ...turn.edits, files: merged, applied: whole } };
}

export function sum(a: Usage | null, b: Usage): Usage {
    if (a === null) return b;
    const add = (x: number | null, y: number | null) => (x === null ? y : y === null ? x : x + y);
    return {
        inputTokens: add(a.inputTokens, b.inputTokens),
        outputTokens: add(a.outputTokens, b.outputTokens),
        thinkingTokens: add(a.thinkingTokens, b.thinkingTokens),
        cacheReadTokens: add(a.cacheReadTokens, b.cacheReadTokens),
        cacheWriteTokens: add(a.cacheWriteTokens, b.cacheWriteTokens),
        costUsd: add(a.costUsd, b.costUsd),
    };
}

/** Without the text and the thinking since the last complete step: the model sends them again. */
function restarted(turn: Turn): Turn {
    const isNotice = (part: Part) => part.kind === 'notice';
    const known = turn.stepParts.filter(isNotice).length;
    const notices = turn.parts.filter(isNotice).slice(known);
    return { ...turn, parts: notices.reduce(beforeThought, turn.stepParts) };
}

/** A turn whose request was answered with an error, perhaps before the turn began. */
export function failed(turn: Turn, now: number): Turn {
    return { ...turn, parts: settled(turn.parts, now), running: false, stopReason: 'error' };
}

function finished(turn: Turn, { result }: Extract<Partial, { kind: 'finished' }>, now: number): Turn {
    const ended = { ...turn, parts: settled(turn.parts, now), running: false };
    const said = new Set(ended.parts.flatMap((part) => (part.kind === 'notice' ? [part.text] : [])));
    const unsaid = result.notices.filter((text) => !said.has(text));
    return {
        ...ended,
        parts: [...ended.parts, ...unsaid.map((text): Part => ({ kind: 'notice', level: 'info', text }))],
        usage: result.usage,
        turnId: result.turnId,
        stopReason: result.stopReason,
        edits: result.edits,
    };
}

function withTool(turn: Turn, { toolCallId, name, title, status }: Extract<Partial, { kind: 'tool' }>, now: number): Turn {
    // Its outcome is shown, not the call.
    if (name === PLAN) {
        return turn;
    }
    const part: Part = { kind: 'tool', id: toolCallId, name, title, status };
    const known = turn.parts.findIndex((other) => other.kind === 'tool' && other.id === toolCallId);
    const parts = known < 0 ? [...settled(turn.parts, now), part] : turn.parts.with(known, part);
    const busy = parts.some((other) => other.kind === 'tool' && other.status === 'in_progress');
    return { ...turn, parts: busy || parts.at(-1)?.kind === 'thinking' ? parts : [...parts, thought(now)] };
}

function thought(now: number): Extract<Part, { kind: 'thinking' }> {
    return { kind: 'thinking', text: '', began: now, ended: null };
}

/** With the thought at the end, if there is one, brought to its end. */
function settled(parts: readonly Part[], now: number): readonly Part[] {
    const last = parts.at(-1);
    if (last?.kind !== 'thinking' || last.ended !== null) return parts;
    const worth = last.text.trim() !== '' || (last.began !== null && now - last.began >= WORTH_A_LINE_MS);
    return worth ? parts.with(-1, { ...last, ended: now }) : parts.slice(0, -1);
}

/** A thought that still goes on stays at the end. */
function beforeThought(parts: readonly Part[], part: Part): readonly Part[] {
    const last = parts.at(-1);
    return last?.kind === 'thinking' && last.ended === null ? [...parts.slice(0, -1), part, last] : [...parts, part];
}

function replaced(turn: Turn, part: Part): Turn {
    return { ...turn, parts: turn.parts.with(-1, part) };
}
