/** What the server and this extension say to each other beyond LSP. */

import type { Range } from 'vscode-languageclient/node';

export type Effort = 'auto' | 'low' | 'medium' | 'high' | 'xhigh' | 'max';

/** A command of the server whose answer is the end of a turn. */
export type TurnCommand = 'thinklsp.chat' | 'thinklsp.action' | 'thinklsp.send';

export interface ChatArgument {
    prompt?: string;
    /** `last`: the newest of this workspace; left out: a new one. */
    sessionId?: string;
    uri?: string;
    range?: Range;
    references?: (string | { uri: string; range?: Range })[];
    mode?: 'agent' | 'ask' | 'plan';
    effort?: Effort;
    model?: string;
}

export interface ActionArgument {
    name?: string;
    uri?: string;
    range?: Range;
    diagnostics?: unknown[];
    instruction?: string;
    version?: number;
    effort?: Effort;
    model?: string;
}

export type StopReason =
    | 'end_turn'
    | 'cancelled'
    | 'refusal'
    | 'max_tokens'
    | 'max_steps'
    | 'budget'
    | 'error'
    | 'context_window';

/** A figure that the service does not give is null. `inputTokens` is the whole input, cached parts included. */
export interface Usage {
    inputTokens: number | null;
    outputTokens: number | null;
    thinkingTokens: number | null;
    cacheReadTokens: number | null;
    cacheWriteTokens: number | null;
    costUsd: number | null;
}

export interface EditedFile {
    uri: string;
    status: 'applied' | 'some' | 'conflict' | 'refused' | 'held' | 'unknown';
    hunks: { applied: number; waiting: number };
    reason: string | null;
}

export interface Edits {
    applied: 'all' | 'some' | 'none';
    files: EditedFile[];
    proposalId: string | null;
}

export interface TurnResult {
    turnId: string;
    sessionId: string;
    stopReason: StopReason;
    text: string;
    thinking: string | null;
    edits: Edits | null;
    verified: { command: string; passed: number; failed: number } | null;
    usage: Usage;
    notices: string[];
}

/** The answer of `thinklsp.apply` and `thinklsp.undo`. */
export interface Applied {
    applied: 'all' | 'some' | 'none';
    files: EditedFile[];
}

export interface TurnStarted {
    turnId: string;
    sessionId: string;
}

export interface PlanEntry {
    text: string;
    status: string;
}

/** What a turn shows while it runs, in order; `finished` is the last. */
export type PartialResult =
    | { kind: 'text'; delta: string }
    | { kind: 'thinking'; delta: string }
    | { kind: 'tool'; toolCallId: string; name: string; title: string; status: 'in_progress' | 'completed' | 'failed' }
    | { kind: 'plan'; entries: PlanEntry[] }
    | ({ kind: 'usage' } & Usage)
    | { kind: 'notice'; level: 'info' | 'warning' | 'error'; text: string }
    | { kind: 'restart' }
    | { kind: 'finished'; result: TurnResult };

/** The answer of `thinklsp.effort`, `thinklsp.thinking` and `thinklsp.model`. */
export interface Choice {
    value: string | null;
    effective: string | null;
    choices: string[];
    notice: string | null;
}

/** A row of `thinklsp.sessions` op `list`, newest first. */
export interface SessionRow {
    sessionId: string;
    title: string;
    model: string | null;
    steps: number;
    messages: number;
    created: string;
    updated: string;
    busy: boolean;
}

export interface Attached {
    attached: boolean;
    turnId: string | null;
    sessionId: string | null;
    notice: string | null;
}

export type UsageRow = Usage & { cacheShare: number | null };

export interface UsageReport {
    sessionId: string | null;
    total: UsageRow;
    today: UsageRow;
    byTurn: (UsageRow & { turnId: string })[];
    byDay: (UsageRow & { day: string })[];
    byModel: (UsageRow & { model: string })[];
    unpriced: string[];
}
