/** The chat view's state of one turn, and how each partial result of the server changes it. Pure functions. */

import type { ChangedFile, Part, Partial, Turn, Usage } from './messages';

/** Thinking shorter than this many milliseconds is not shown unless it has text. */
const WORTH_A_LINE_MS = 1_000;
/** The tool that the model uses to show its plan. */
export const PLAN = 'plan';

/** Creates the state of a new turn, which starts with thinking. */
export function begun(prompt: string, attachments: readonly string[], now: number, images: Turn['images'] = []): Turn {
    const parts = [thought(now)];
    return {
        prompt,
        attachments,
        images,
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

/** Updates a turn with the result of `thinklsp.apply` for its pending edit. */
export function applied<T extends Pick<Turn, 'edits'>>(turn: T, files: readonly ChangedFile[]): T {
    if (turn.edits === null) return turn;
    const now = new Map(files.map((file) => [file.uri, file]));
    const merged = turn.edits.files.map((file) => now.get(file.uri) ?? file);
    const all = merged.every((file) => file.status === 'applied');
    const some = merged.some((file) => file.status === 'applied' || file.status === 'some');
    const whole = all ? 'all' : some ? 'some' : 'none';
    return { ...turn, edits: { ...turn.edits, files: merged, applied: whole } };
}

export function isChanged({ status }: ChangedFile): boolean {
    return status === 'applied' || status === 'some';
}

/** Returns a file after the pending edit of its turn was dropped, perhaps because the turn was undone. */
export function afterDrop(file: ChangedFile, isUndone: boolean): ChangedFile {
    const isSettled = file.status === 'undone' || file.status === 'discarded';
    const status = isSettled ? file.status : !isChanged(file) ? 'discarded' : isUndone ? 'undone' : 'applied';
    return { ...file, status, reason: null };
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

/** Drops the text and the thinking since the last complete step, because the model sends them again. */
function restarted(turn: Turn): Turn {
    const isNotice = (part: Part) => part.kind === 'notice';
    const known = turn.stepParts.filter(isNotice).length;
    const notices = turn.parts.filter(isNotice).slice(known);
    return { ...turn, parts: notices.reduce(beforeThought, turn.stepParts) };
}

/** Ends a turn whose events go on in another one: a queued prompt joined it. */
export function closed(turn: Turn, now: number): Turn {
    return { ...turn, parts: settled(turn.parts, now), running: false };
}

/** Marks a turn as failed after its request was answered with an error. */
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

function withTool(turn: Turn, value: Extract<Partial, { kind: 'tool' }>, now: number): Turn {
    const { toolCallId, name, title, status } = value;
    // The plan itself is shown instead of the call.
    if (name === PLAN) {
        return turn;
    }
    const details = { ...(value.arguments && { input: value.arguments }), ...(value.result && { output: value.result }) };
    const part: Part = { kind: 'tool', id: toolCallId, name, title, status, ...details };
    const known = turn.parts.findIndex((other) => other.kind === 'tool' && other.id === toolCallId);
    const parts = known < 0 ? [...settled(turn.parts, now), part] : turn.parts.with(known, part);
    const busy = parts.some((other) => other.kind === 'tool' && other.status === 'in_progress');
    return { ...turn, parts: busy || parts.at(-1)?.kind === 'thinking' ? parts : [...parts, thought(now)] };
}

function thought(now: number): Extract<Part, { kind: 'thinking' }> {
    return { kind: 'thinking', text: '', began: now, ended: null };
}

/** Ends the open thinking at the end of the parts; drops it if it is too short to show. */
function settled(parts: readonly Part[], now: number): readonly Part[] {
    const last = parts.at(-1);
    if (last?.kind !== 'thinking' || last.ended !== null) return parts;
    const worth = last.text.trim() !== '' || (last.began !== null && now - last.began >= WORTH_A_LINE_MS);
    return worth ? parts.with(-1, { ...last, ended: now }) : parts.slice(0, -1);
}

/** Adds a part at the end, or before open thinking at the end. */
function beforeThought(parts: readonly Part[], part: Part): readonly Part[] {
    const last = parts.at(-1);
    return last?.kind === 'thinking' && last.ended === null ? [...parts.slice(0, -1), part, last] : [...parts, part];
}

function replaced(turn: Turn, part: Part): Turn {
    return { ...turn, parts: turn.parts.with(-1, part) };
}
