/** The messages between the extension and its chat view, and the server's partial results.
 * Both sides check the messages that they receive and drop unknown ones. */

import { IMAGE_TYPES } from './images';
import { type Check, type Checked, anything, boolean, kinds, list, nullable, number, object, oneOf, optional, string } from './shape';

export const LEVELS = ['info', 'warning', 'error'] as const;
export const MODES = ['agent', 'ask', 'plan'] as const;
export const CHOICES = ['effort', 'thinking', 'model'] as const;
/** The buttons that an error can offer. */
export const FIXES = ['setKey', 'openConfig', 'thinkingDisplay'] as const;

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
    /** `undone` and `discarded` are not of the server: the user has undone the change, or dropped it while it was pending. */
    status: oneOf('applied', 'some', 'conflict', 'refused', 'held', 'unknown', 'undone', 'discarded'),
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

/** The values of `$/progress` for a turn's partialResultToken. */
export const isPartial = kinds({
    text: { delta: string },
    thinking: { delta: string },
    tool: {
        toolCallId: string,
        name: string,
        title: string,
        status: oneOf('in_progress', 'completed', 'failed'),
        // Missing from older servers.
        arguments: optional(string),
        result: optional(string),
    },
    plan: { entries: list(planEntry) },
    usage: usageFields,
    notice: { level, text: string },
    restart: {},
    finished: { result },
});

const part = kinds({
    text: { text: string },
    thinking: { text: string, began: figure, ended: figure },
    tool: {
        id: string,
        name: string,
        title: string,
        status: oneOf('in_progress', 'completed', 'failed'),
        input: optional(string),
        output: optional(string),
    },
    notice: { level, text: string },
});
const image = object({ mimeType: oneOf(...IMAGE_TYPES), data: string });
const turn = object({
    prompt: string,
    attachments: list(string),
    /** The images of a prompt that this window has sent; of others the view shows only names. */
    images: optional(list(image)),
    parts: list(part),
    /** The parts at the end of the last complete step; not needed after the turn has ended. */
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
const shownFinding = object({ place: string, level: oneOf(...LEVELS), message: string, checked: boolean });
const decided = object({ uri: string, open: number, kept: number, undone: number, canCompare: boolean });
const token = object({ text: string, style: string });
const queuedPrompt = object({ id: number, prompt: string });
/** Lines of a file, counted from 0, both ends included; null for the whole file. */
const place = object({ uri: string, lines: nullable(object({ first: number, last: number })) });
const question = object({ id: number, text: string, options: list(string) });
const model = object({
    id: string,
    provider: string,
    title: string,
    hasKey: boolean,
    window: figure,
    price: nullable(object({ input: number, output: number })),
});
const offer = object({ label: string, insert: string, detail: string });

/** Messages from the extension to the view. */
export const isToView = kinds({
    opened: { sessionId: nullable(string), title: string, turns: list(turn) },
    began: { prompt: string, attachments: list(string), images: optional(list(image)) },
    partial: { value: isPartial },
    status: { text: string },
    /** The turn failed. `fixes` are the buttons that can help, the best one first. */
    failed: { text: string, fixes: list(object({ label: string, fix: oneOf('retry', ...FIXES) })) },
    told: { level, text: string },
    choices: { effort: choice, thinking: choice, model: choice, models: list(model), offline: boolean },
    summaries: { shown: boolean },
    usage: { total: object(usageFields), turns: number },
    sessions: { sessions: list(session) },
    /** The place that the next prompt includes, unless the user leaves it out. */
    context: { place: nullable(object({ label: string, place })) },
    questions: { questions: list(question) },
    /** A prompt that was not sent. */
    draft: { text: string, images: optional(list(image)) },
    offers: { id: number, offers: list(offer) },
    toolDetails: { toolCallId: string, input: string, output: string },
    applied: { turnId: string, files: list(changedFile) },
    findings: { turnId: string, findings: list(shownFinding) },
    queued: { prompts: list(queuedPrompt) },
    highlighted: { id: number, tokens: list(token) },
    decided: { turnId: string, files: list(decided) },
    show: { what: oneOf('sessions', 'questions') },
});

/** Messages from the view to the extension. */
export const isFromView = kinds({
    ready: {},
    ask: { prompt: string, mode: oneOf(...MODES), place: nullable(place), images: optional(list(image)) },
    /** Sends an earlier prompt again, perhaps with other words. `turn` is its number in the view. */
    retry: { turn: number, before: string, prompt: string, mode: oneOf(...MODES) },
    answer: { id: number, option: string },
    stop: {},
    unqueue: { id: number },
    begin: {},
    sessions: {},
    open: { sessionId: string },
    delete: { sessionId: string },
    fork: { sessionId: string },
    rename: { sessionId: string, title: string },
    export: { sessionId: string },
    choose: { key: oneOf(...CHOICES), value: string },
    offers: { id: number, word: string },
    toolDetails: { toolCallId: string },
    file: { uri: string },
    diff: { turnId: string, uri: string },
    apply: { turnId: string },
    discard: { turnId: string },
    /** `uri` is null for all files of the turn. */
    decide: { turnId: string, uri: nullable(string), how: oneOf('keep', 'undo') },
    check: { turnId: string, number: number, checked: boolean },
    copy: { text: string },
    insert: { text: string },
    highlight: { id: number, language: string, text: string },
    applyCode: { info: string, text: string },
    terminal: { language: string, text: string },
    link: { url: string },
    fix: { fix: oneOf(...FIXES) },
});

export const isExported = object({
    title: string,
    steps: number,
    messages: list(object({ role: string, blocks: list(anything) })),
    /** Prompts without an answer, and, without a text, how turns ended that were stopped after their first step. */
    unanswered: optional(
        list(
            object({
                text: string,
                messages: number,
                outcome: string,
                reason: string,
                turn: string,
                partial: string,
                references: optional(list(string)),
            }),
        ),
    ),
    turns: optional(
        list(
            object({
                turnId: string,
                usage: object(usageFields),
                files: list(string),
                undone: optional(list(string)),
                references: list(string),
            }),
        ),
    ),
});
export const isPlan = list(planEntry);
export const isSessions: Check<readonly Session[]> = list(session);
export const isChoice: Check<Choice> = choice;
export const isApplied = object({ files: list(changedFile) });
export const isUsageReport = object({ total: object(usageFields), byTurn: list(anything) });
export const isModels = list(model);

export type Partial = Checked<typeof isPartial>;
export type ToView = Checked<typeof isToView>;
export type FromView = Checked<typeof isFromView>;
export type Turn = Checked<typeof turn>;
export type Part = Checked<typeof part>;
export type ToolPart = Extract<Part, { kind: 'tool' }>;
export type Usage = Checked<ReturnType<typeof object<typeof usageFields>>>;
export type Edits = Checked<typeof edits>;
export type ChangedFile = Checked<typeof changedFile>;
export type Token = Checked<typeof token>;
export type QueuedPrompt = Checked<typeof queuedPrompt>;
export type Decided = Checked<typeof decided>;
export type ShownFinding = Checked<typeof shownFinding>;
export type Session = Checked<typeof session>;
export type Choice = Checked<typeof choice>;
export type ChoiceName = (typeof CHOICES)[number];
export type Exported = Checked<typeof isExported>;
export type SentPlace = Checked<typeof place>;
export type Question = Checked<typeof question>;
export type Model = Checked<typeof model>;
export type Offer = Checked<typeof offer>;
export type Level = (typeof LEVELS)[number];
export type Mode = (typeof MODES)[number];
export type Fix = (typeof FIXES)[number];
