/** What passes between the extension and its chat view, both ways, and what the server says about a turn.
 * Both sides check what they receive; what is not listed here is dropped. */

import { type Check, type Checked, anything, boolean, kinds, list, nullable, number, object, oneOf, string } from './shape';

export const LEVELS = ['info', 'warning', 'error'] as const;
export const MODES = ['agent', 'ask', 'plan'] as const;
export const CHOICES = ['effort', 'thinking', 'model'] as const;
/** What the user can be helped to when something went wrong. */
export const FIXES = ['setKey', 'doctor', 'thinkingDisplay'] as const;

const figure = nullable(number);
const usageFields = {
    inputTokens: figure,
    outputTokens: figure,
    thinkingTokens: figure,
    cacheReadTokens: figure,
    cacheWriteTokens: figure,
    costUsd: figure,
};
const level = oneOf(...LEVELS);
const planEntry = object({ text: string, status: string });
const changedFile = object({
    uri: string,
    status: oneOf('applied', 'some', 'conflict', 'refused', 'held', 'unknown'),
    hunks: object({ applied: number, waiting: number }),
    reason: nullable(string),
});
const edits = object({ applied: oneOf('all', 'some', 'none'), files: list(changedFile), proposalId: nullable(string) });
const result = object({
    turnId: string,
    sessionId: string,
    stopReason: string,
    text: string,
    thinking: nullable(string),
    edits: nullable(edits),
    usage: object(usageFields),
    notices: list(string),
});

/** Values of `$/progress` under a turn's partialResultToken. */
export const isPartial = kinds({
    text: { delta: string },
    thinking: { delta: string },
    tool: { toolCallId: string, name: string, title: string, status: oneOf('in_progress', 'completed', 'failed') },
    plan: { entries: list(planEntry) },
    usage: usageFields,
    notice: { level, text: string },
    restart: {},
    finished: { result },
});

const part = kinds({
    text: { text: string },
    thinking: { text: string, began: figure, ended: figure },
    tool: { id: string, name: string, title: string, status: oneOf('in_progress', 'completed', 'failed') },
    notice: { level, text: string },
});
const turn = object({
    prompt: string,
    attachments: list(string),
    parts: list(part),
    /** The parts when the last step was complete; a turn that has ended needs none. */
    stepParts: list(part),
    plan: list(planEntry),
    usage: nullable(object(usageFields)),
    turnId: nullable(string),
    stopReason: nullable(string),
    edits: nullable(edits),
    running: boolean,
});
const choice = object({ value: nullable(string), effective: nullable(string), choices: list(string), notice: nullable(string) });
const session = object({
    sessionId: string,
    title: string,
    model: nullable(string),
    updated: string,
    usage: object(usageFields),
    busy: boolean,
});
const offer = object({ label: string, insert: string, detail: string });

/** From the extension to the view. */
export const isToView = kinds({
    opened: { sessionId: nullable(string), title: string, turns: list(turn) },
    began: { prompt: string, attachments: list(string) },
    partial: { value: isPartial },
    status: { text: string },
    failed: { text: string, fix: nullable(object({ label: string, fix: oneOf(...FIXES) })) },
    told: { level, text: string },
    choices: { effort: choice, thinking: choice, model: choice },
    summaries: { shown: boolean },
    usage: { total: object(usageFields) },
    sessions: { sessions: list(session) },
    selection: { label: nullable(string) },
    offers: { id: number, offers: list(offer) },
    toolDetails: { toolCallId: string, input: string, output: string },
    applied: { turnId: string, files: list(changedFile) },
    show: { what: oneOf('sessions', 'prompt') },
});

/** From the view to the extension. */
export const isFromView = kinds({
    ready: {},
    ask: { prompt: string, mode: oneOf(...MODES), selection: boolean },
    stop: {},
    begin: {},
    sessions: {},
    open: { sessionId: string },
    delete: { sessionId: string },
    fork: { sessionId: string },
    choose: { key: oneOf(...CHOICES), value: string },
    offers: { id: number, word: string },
    toolDetails: { toolCallId: string },
    file: { uri: string },
    diff: { turnId: string, uri: string },
    apply: { turnId: string },
    copy: { text: string },
    insert: { text: string },
    link: { url: string },
    fix: { fix: oneOf(...FIXES) },
});

export const isExported = object({
    title: string,
    messages: list(object({ role: string, blocks: list(anything) })),
});
export const isPlan = list(planEntry);
export const isSessions: Check<readonly Session[]> = list(session);
export const isChoice: Check<Choice> = choice;
export const isApplied = object({ files: list(changedFile) });
export const isUsageReport = object({ total: object(usageFields) });

export type Partial = Checked<typeof isPartial>;
export type ToView = Checked<typeof isToView>;
export type FromView = Checked<typeof isFromView>;
export type Turn = Checked<typeof turn>;
export type Part = Checked<typeof part>;
export type ToolPart = Extract<Part, { kind: 'tool' }>;
export type Usage = Checked<ReturnType<typeof object<typeof usageFields>>>;
export type Edits = Checked<typeof edits>;
export type ChangedFile = Checked<typeof changedFile>;
export type Session = Checked<typeof session>;
export type Choice = Checked<typeof choice>;
export type ChoiceName = (typeof CHOICES)[number];
export type Offer = Checked<typeof offer>;
export type Level = (typeof LEVELS)[number];
export type Mode = (typeof MODES)[number];
export type Fix = (typeof FIXES)[number];
