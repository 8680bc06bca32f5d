/** One conversation at a time: its session, the turn that runs in it, and what the view is told about both. */

import type { Disposable, Memento } from 'vscode';
import type { PartialResult, TurnResult } from '../protocol';
import type { Running, Turns } from '../turns';
import { sentence } from '../said';
import { along, labelled, reference } from './context';
import { type History, history } from './history';
import { type Fix, type Mode, type ToView, isApplied, isPartial, isSessions, isUsageReport } from './messages';
import { Results } from './results';

const KEPT = 'thinklsp.chat.session';
// What the server answers where it can say why.
const REQUEST_FAILED = -32803;
const NO_KEY = /\bkey\b/i;

interface Live {
    running: Running;
    prompt: string;
    attachments: string[];
    /** Its last partial result has come. */
    finished: boolean;
}

export class Conversation implements Disposable {
    private live: Live | undefined;
    private events: Disposable | undefined;
    private readonly results = new Results();

    constructor(
        private readonly turns: Turns,
        private readonly post: (message: ToView) => void,
        private readonly kept: Memento,
    ) {}

    get sessionId(): string | undefined {
        return this.kept.get<string>(KEPT);
    }

    get busy(): boolean {
        return this.live !== undefined && !this.live.finished;
    }

    /** Everything anew, for a view that knows nothing yet. */
    async show(): Promise<void> {
        const { sessionId } = this;
        if (sessionId === undefined) {
            this.opened({ title: '', turns: [], tools: new Map() });
        } else {
            await this.open(sessionId);
        }
    }

    async open(sessionId: string): Promise<void> {
        if (this.sessionId !== sessionId) {
            this.leave();
        }
        const known = await this.exported(sessionId);
        if (known === undefined) {
            await this.begin();
            return;
        }
        await this.kept.update(KEPT, sessionId);
        if (this.live === undefined) {
            const running = await this.turns.attach(sessionId).catch(() => undefined);
            const last = known.turns.at(-1);
            if (running !== undefined && last !== undefined) {
                this.watch({ running, prompt: last.prompt, attachments: [...last.attachments], finished: false });
            }
        }
        this.opened(known);
        await this.tellUsage();
    }

    /** A new one; the session of the former stays where it is. */
    async begin(): Promise<void> {
        this.leave();
        await this.kept.update(KEPT, undefined);
        this.opened({ title: '', turns: [], tools: new Map() });
        await this.tellSessions();
    }

    async ask(prompt: string, mode: Mode, selection: boolean): Promise<void> {
        // It has ended on the screen already; its answer is on the way.
        await this.live?.running.result.catch(() => undefined);
        const what = await along(prompt, selection);
        what.missing.forEach(text => this.post({ kind: 'told', level: 'warning', text }));
        const { sessionId } = this;
        const running = this.turns.start('thinklsp.chat', {
            prompt: what.prompt,
            ...(sessionId === undefined ? {} : { sessionId }),
            references: what.places.map(reference),
            mode,
        });
        const live = { running, prompt, attachments: what.places.map(labelled), finished: false };
        this.watch(live);
        this.follow(live);
    }

    stop(): void {
        this.live?.running.cancel();
    }

    async toolDetails(toolCallId: string): Promise<void> {
        const known = this.sessionId === undefined ? undefined : await this.exported(this.sessionId);
        const { input, output } = known?.tools.get(toolCallId) ?? { input: '', output: '' };
        this.post({ kind: 'toolDetails', toolCallId, input, output });
    }

    async apply(turnId: string): Promise<void> {
        const answer = await this.turns.ask<unknown>('thinklsp.apply', { turnId });
        if (isApplied(answer)) {
            this.results.applied(turnId, answer.files);
            this.post({ kind: 'applied', turnId, files: answer.files });
        }
    }

    async tellSessions(): Promise<void> {
        const sessions = await this.turns.ask<unknown>('thinklsp.sessions', { op: 'list' });
        if (isSessions(sessions)) {
            this.post({ kind: 'sessions', sessions });
        }
    }

    async tellUsage(): Promise<void> {
        const { sessionId } = this;
        const report = sessionId === undefined ? undefined : await this.turns.ask<unknown>('thinklsp.usage', { sessionId });
        if (isUsageReport(report)) {
            this.post({ kind: 'usage', total: report.total });
        }
    }

    dispose(): void {
        this.leave();
    }

    /** The turn that runs goes on; it only is not shown here any more. */
    private leave(): void {
        this.events?.dispose();
        this.events = undefined;
        this.live = undefined;
    }

    private opened(known: History): void {
        const { live, sessionId } = this;
        const turns = sessionId === undefined ? [...known.turns] : this.results.onto(sessionId, known.turns);
        // The prompt is stored when its turn begins; what the turn has done so far is replayed.
        if (live !== undefined && turns.at(-1)?.prompt === live.prompt.trim()) {
            turns.pop();
        }
        this.post({ kind: 'opened', sessionId: sessionId ?? null, title: known.title, turns });
        if (live !== undefined) {
            this.follow(live);
        }
    }

    /** Shows the turn from its beginning. */
    private follow(live: Live): void {
        this.events?.dispose();
        this.post({ kind: 'began', prompt: live.prompt, attachments: live.attachments });
        this.events = live.running.onEvent((value: PartialResult) => {
            if (isPartial(value)) {
                live.finished ||= value.kind === 'finished';
                this.post({ kind: 'partial', value });
            }
        });
    }

    private watch(live: Live): void {
        this.live = live;
        live.running.result.then(
            result => this.ended(live, result),
            error => this.failed(live, sentence(error)).catch(() => undefined),
        );
    }

    private async ended(live: Live, result: TurnResult): Promise<void> {
        if (this.live === live) {
            this.live = undefined;
            await this.kept.update(KEPT, result.sessionId);
        }
        const known = await this.exported(result.sessionId).catch(() => undefined);
        this.results.keep(known?.turns ?? [], live.prompt, result);
        await Promise.all([this.tellUsage(), this.tellSessions()]).catch(() => undefined);
    }

    private async failed(live: Live, text: string): Promise<void> {
        if (this.live === live) {
            this.live = undefined;
            // A turn that failed is part of its session: the next prompt goes on there.
            await this.kept.update(KEPT, live.running.sessionId ?? this.sessionId);
            this.post({ kind: 'failed', text, fix: fixFor(text) });
        }
    }

    /** Undefined: there is no such session any more. */
    private async exported(sessionId: string): Promise<History | undefined> {
        try {
            const asked = { op: 'export', sessionId, format: 'json' };
            return history((await this.turns.ask<{ text: string }>('thinklsp.sessions', asked)).text);
        } catch (error) {
            if ((error as { code?: unknown }).code === REQUEST_FAILED) {
                return undefined;
            }
            throw error;
        }
    }
}

function fixFor(text: string): { label: string; fix: Fix } | null {
    return NO_KEY.test(text) ? { label: 'Set API Key…', fix: 'setKey' } : { label: 'Doctor', fix: 'doctor' };
}
