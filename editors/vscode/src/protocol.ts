/** Types of the messages between the server and this extension beyond LSP. */

import type { Range } from 'vscode-languageclient/node';
import type { SentImage } from './chat/images';

export type Effort = 'auto' | 'low' | 'medium' | 'high' | 'xhigh' | 'max';

/** A command of the server that runs a turn and responds when the turn ends. */
export type TurnCommand = 'thinklsp.chat' | 'thinklsp.action' | 'thinklsp.send';

export interface ChatArgument {
    prompt?: string;
    /** A session id, or `last` for the newest session of the workspace; a new session if omitted. */
    sessionId?: string;
    uri?: string;
    range?: Range;
    references?: (string | { uri: string; range?: Range })[];
    /** Images in base64; at most 20. */
    images?: readonly SentImage[];
    mode?: 'agent' | 'ask' | 'plan';
    /** Whether the prompt may wait for the running turn of its session. */
    queue?: boolean;
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

/** Usage figures; null if the provider did not send one. `inputTokens` includes cached tokens. */
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

/** A finding of a review; the severity is that of LSP. */
export interface ReportedFinding {
    uri: string;
    range: Range;
    severity: number;
    message: string;
}

export interface TurnResult {
    turnId: string;
    sessionId: string;
    stopReason: StopReason;
    text: string;
    thinking: string | null;
    edits: Edits | null;
    verified: { command: string; passed: number; failed: number } | null;
    /** Only of a review, and only from servers that report findings. */
    findings?: ReportedFinding[] | null;
    usage: Usage;
    notices: string[];
}

/** The response of `thinklsp.apply` and `thinklsp.undo`. */
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

/** The arguments and the result of a tool call, as text; null until they are known. */
export interface ToolProgress {
    kind: 'tool';
    toolCallId: string;
    name: string;
    title: string;
    status: 'in_progress' | 'completed' | 'failed';
    arguments?: string | null;
    result?: string | null;
}

/** The partial results of a running turn, in order; `finished` is the last one. */
export type PartialResult =
    | { kind: 'text'; delta: string }
    | { kind: 'thinking'; delta: string }
    | ToolProgress
    | { kind: 'plan'; entries: PlanEntry[] }
    | ({ kind: 'usage' } & Usage)
    | { kind: 'notice'; level: 'info' | 'warning' | 'error'; text: string }
    | { kind: 'restart' }
    | { kind: 'finished'; result: TurnResult };

/** The response of `thinklsp.effort`, `thinklsp.thinking` and `thinklsp.model`. */
export interface Choice {
    value: string | null;
    effective: string | null;
    choices: string[];
    notice: string | null;
    /** Only for `thinklsp.model`; null if no turn can run. Older servers do not send it. */
    provider?: string | null;
    /** Only for `thinklsp.model`. */
    models?: Model[];
}

/** The parts of the doctor's report that the extension reads. All of them are null if the settings are invalid. */
export interface DoctorReport {
    version: string;
    system: { python: string; platform: string };
    settings: { file: string; sources: Record<string, string>; values: { [name: string]: unknown } } | null;
    providers: { keyed: string[] };
    files: { path: string }[];
    model: DoctorModel | null;
    reachable: boolean | null;
    tools: { ripgrep: boolean };
    commands: { enabled: boolean; offered: boolean; problem: string | null } | null;
    permissions: { trustedFolders: string[] | null } | null;
    store: { path: string | null; sessions: number; databaseExists: boolean; folder: string; log: string };
    canRun: boolean;
    problems: string[];
}

export interface McpReport {
    servers: McpServer[];
    disabled: string[];
    problems: string[];
}

export interface McpServer {
    name: string;
    place: string;
    description: string;
    consent: 'own' | 'approved' | 'new' | 'changed';
    state: string;
    era: string | null;
    startSeconds: number | null;
    lastError: string | null;
    fingerprint: string;
    tools: { name: string; modelName: string | null; hash: string | null; pin: string | null }[];
}

export interface DoctorModel {
    provider: string;
    providerSource: string;
    id: string;
    idSource: string;
    known: boolean;
    contextWindow: number | null;
    catalogue: { price: { input: number; output: number } | null };
    baseUrl: string | null;
    baseUrlSource: string;
    keySource: string;
    thinking: string;
    thinkingSource: string;
    budgetTokens: number | null;
    effort: string;
    effortSource: string;
    maxTokens: number | null;
    notices: string[];
}

/** A model of the catalogue or of the user's server. Prices are in US dollars per million tokens. */
export interface Model {
    id: string;
    provider: string;
    title: string;
    hasKey: boolean;
    window: number | null;
    price: { input: number; output: number } | null;
}

/** A row of `thinklsp.sessions` with op `list`; rows are sorted newest first. */
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

export interface SkillReport {
    folder: string;
    skills: { name: string; description: string; path: string }[];
    problems: string[];
}

export interface UsageReport {
    sessionId: string | null;
    total: UsageRow;
    today: UsageRow;
    byTurn: (UsageRow & { turnId: string })[];
    byDay: (UsageRow & { day: string })[];
    byModel: (UsageRow & { model: string })[];
    unpriced: string[];
}
