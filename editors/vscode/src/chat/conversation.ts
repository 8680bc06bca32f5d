/** The conversation that the view shows: its session, its running turn, and the messages to the view about them. */

import type { Disposable, Memento } from 'vscode';
import type { Applied, PartialResult, TurnResult } from '../protocol';
import type { Running, Turns } from '../turns';
import { sentence } from '../said';
import { type Along, type Place, along, alongAgain, findPlaces, labelled, reference } from './context';
import type { Findings } from './findings';
import { fixesFor } from './fixes';
import { EMPTY, type History, history } from './history';
import { RecentImages, type SentImage, wordsOf } from './images';
import { type Mode, type ToView, isApplied, isPartial, isSessions, isUsageReport } from './messages';
import { Queue, type Queued } from './queue';
import { Results } from './results';
import { afterDrop, isChanged } from './turn';

const KEPT = 'thinklsp.chat.session';
// The error code of the server's own messages.
const REQUEST_FAILED = -32803;

interface Live {
    running: Running;
    prompt: string;
    attachments: string[];
    images: readonly SentImage[];
    /** What was sent with the prompt; undefined if another window sent it. */
    places: readonly Place[] | undefined;
    /** The code action whose session has only this turn. Its stored prompt has other words. */
    action: string | undefined;
    /** True after the last partial result. */
    finished: boolean;
}

export class Conversation implements Disposable {
    private live: Live | undefined;
    private events: Disposable | undefined;
    private readonly results = new Results();
    private readonly queue: Queue;
    private readonly images = new RecentImages();
    /** The sessions that existed before the running turn started. */
    private sessionIds: readonly string[] = [];

    constructor(
        private readonly turns: Turns,
        private readonly post: (message: ToView) => void,
        private readonly kept: Memento,
        private readonly findings: Findings,
    ) {
        this.queue = new Queue(post);
    }

    get sessionId(): string | undefined {
        return this.kept.get<string>(KEPT);
    }

    get busy(): boolean {
        return this.live !== undefined && !this.live.finished;
    }

    /** Sends the whole state to a new view. */
    async show(): Promise<void> {
        const { sessionId } = this;
        if (sessionId === undefined) {
            this.opened(EMPTY);
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
                const { prompt, attachments } = last;
                const unknown = { places: undefined, action: undefined, images: this.images.of(prompt) };
                this.watch({ running, prompt, attachments: [...attachments], ...unknown, finished: false });
            }
        }
        this.opened(known);
        await this.tellUsage();
    }

    /** Starts a new conversation, by default without a session. The previous session stays stored. */
    async begin(sessionId?: string): Promise<void> {
        this.leave();
        await this.kept.update(KEPT, sessionId);
        this.opened(EMPTY);
        await this.tellSessions();
    }

    /** Sends a prompt. While a turn runs, the prompt is queued. */
    async ask(said: string, mode: Mode, included: readonly Place[], images: readonly SentImage[] = []): Promise<void> {
        const { live } = this;
        const prompt = wordsOf(said, images);
        this.images.keep(prompt, images);
        if (live !== undefined && !live.finished) {
            return this.enqueue(live, prompt, mode, included, images);
        }
        // The turn has ended on the screen, but its response may still be on the way.
        await this.live?.running.result.catch(() => undefined);
        this.begun(prompt, this.withWarnings(await along(prompt, included)), mode, images);
    }

    /** Sends an earlier prompt again, with the words of `prompt`, in a fork of the session at this place. A prompt that the
     * session does not contain, because its turn never started, is sent in the session itself. */
    async retry(number: number, before: string, prompt: string, mode: Mode): Promise<void> {
        this.stop();
        await this.live?.running.result.catch(() => undefined);
        const { sessionId } = this;
        const turns = sessionId === undefined ? [] : this.results.onto((await this.exported(sessionId))?.turns ?? []);
        const isIt = (turn: (typeof turns)[number] | undefined) => turn?.prompt === before.trim();
        const turn = isIt(turns[number]) ? turns[number] : turns.findLast(isIt);
        const places = turn && (this.results.places(turn) ?? (await findPlaces(turn.references)));
        const what = this.withWarnings(await alongAgain(prompt, before, places ?? []));
        if (turn !== undefined) {
            const asked = { op: 'fork', sessionId, step: turn.step };
            const fork = await this.turns.ask<{ sessionId: string }>('thinklsp.sessions', asked);
            // A fork without steps is not listed, so it cannot be opened.
            await (turn.step === 0 ? this.begin(fork.sessionId) : this.open(fork.sessionId));
        }
        const images = this.images.of(before);
        this.images.keep(prompt, images);
        this.begun(prompt, what, mode, images);
    }

    /** Takes a queued prompt back. A prompt that a turn has taken is no longer queued. */
    unqueue(id: number): void {
        this.queue.remove(id)?.running?.cancel();
    }

    private withWarnings(what: Along): Along {
        what.missing.forEach(text => this.post({ kind: 'told', level: 'warning', text }));
        return what;
    }

    private begun(prompt: string, what: Along, mode: Mode, images: readonly SentImage[]): void {
        const live = liveOf(this.chat(what, mode, this.sessionId, images, false), prompt, what, images);
        this.watch(live);
        this.follow(live);
    }

    private chat(
        what: Along,
        mode: Mode,
        sessionId: string | undefined,
        images: readonly SentImage[],
        queue: boolean,
    ): Running {
        return this.turns.start('thinklsp.chat', {
            prompt: what.prompt,
            ...(sessionId === undefined ? {} : { sessionId }),
            references: what.places.map(reference),
            mode,
            ...(images.length > 0 ? { images } : {}),
            ...(queue ? { queue } : {}),
        });
    }

    private async enqueue(
        before: Live,
        prompt: string,
        mode: Mode,
        included: readonly Place[],
        images: readonly SentImage[],
    ): Promise<void> {
        const queued = this.queue.add(prompt);
        const what = this.withWarnings(await along(prompt, included));
        const sessionId = before.running.sessionId ?? this.sessionId ?? (await this.newBusySession());
        if (sessionId === undefined) {
            await before.running.result.catch(() => undefined);
            if (this.queue.remove(queued.id) !== undefined) {
                this.begun(prompt, what, mode, images);
            }
        } else if (this.queue.has(queued)) {
            this.wait(queued, this.chat(what, mode, sessionId, images, true), what, images);
        }
    }

    /** Waits until a turn takes the prompt, whose events follow, and shows that turn. */
    private wait(queued: Queued, running: Running, what: Along, images: readonly SentImage[]): void {
        queued.running = running;
        const first = running.onEvent(() => {
            first.dispose();
            if (this.queue.remove(queued.id) !== undefined) {
                const live = liveOf(running, queued.prompt, what, images);
                this.watch(live);
                this.follow(live);
            }
        });
        running.result.catch(error => {
            first.dispose();
            if (this.queue.remove(queued.id) !== undefined) {
                this.post({ kind: 'told', level: 'error', text: `Your queued prompt was not sent: ${sentence(error)}` });
            }
        });
    }

    /** Returns the session of the running turn, which its response names only at its end; undefined if it is not clear. */
    private async newBusySession(): Promise<string | undefined> {
        const sessions = await this.turns.ask<unknown>('thinklsp.sessions', { op: 'list' });
        const found = isSessions(sessions) ? sessions.filter(one => one.busy && !this.sessionIds.includes(one.sessionId)) : [];
        return found.length === 1 ? found[0]?.sessionId : undefined;
    }

    /** Shows the running turn of a code action as a new conversation. */
    async adopt(running: Running, action: string, prompt: string, places: readonly Place[]): Promise<void> {
        this.leave();
        await this.kept.update(KEPT, running.sessionId);
        this.watch({ running, prompt, attachments: places.map(labelled), places, action, images: [], finished: false });
        this.opened({ ...EMPTY, title: prompt });
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

    /** Drops the pending edit of a turn. */
    async discard(turnId: string): Promise<void> {
        await this.turns.ask('thinklsp.discard', { turnId });
        this.settle(turnId, false);
    }

    /** Undoes the latest turn of the session that changed files. The server drops what is pending of it. */
    async undo(): Promise<Applied> {
        const { sessionId } = this;
        const known = sessionId === undefined ? undefined : await this.exported(sessionId);
        const last = this.results.onto(known?.turns ?? []).findLast(({ edits }) => edits?.files.some(isChanged));
        const turnId = last?.turnId ?? undefined;
        const settle = () => turnId !== undefined && this.settle(turnId, true);
        try {
            const answer = await this.turns.ask<Applied>('thinklsp.undo', { turnId });
            if (answer.applied === 'all') {
                settle();
            }
            return answer;
        } catch (error) {
            // The user has undone the turn in the editor.
            if (sentence(error).startsWith('Nothing')) {
                settle();
            }
            throw error;
        }
    }

    private settle(turnId: string, isUndone: boolean): void {
        const files = this.results.files(turnId).map(file => afterDrop(file, isUndone));
        this.results.applied(turnId, files);
        this.post({ kind: 'applied', turnId, files });
    }

    async tellSessions(): Promise<void> {
        const sessions = await this.turns.ask<unknown>('thinklsp.sessions', { op: 'list' });
        if (isSessions(sessions)) {
            this.sessionIds = sessions.map(one => one.sessionId);
            this.post({ kind: 'sessions', sessions });
        }
    }

    async tellUsage(): Promise<void> {
        const { sessionId } = this;
        const report = sessionId === undefined ? undefined : await this.turns.ask<unknown>('thinklsp.usage', { sessionId });
        if (isUsageReport(report)) {
            this.post({ kind: 'usage', total: report.total, turns: report.byTurn.length });
        }
    }

    dispose(): void {
        this.leave();
    }

    /** Stops showing the running turn, which continues in the server. */
    private leave(): void {
        this.events?.dispose();
        this.events = undefined;
        this.live = undefined;
        this.queue.leave();
    }

    private opened(known: History): void {
        const { live, sessionId } = this;
        const turns = this.results.onto(known.turns);
        // The stored history already has the prompt of the running turn, whose events are replayed below.
        if (live !== undefined && (live.action !== undefined || turns.at(-1)?.prompt === live.prompt.trim())) {
            turns.pop();
        }
        this.post({ kind: 'opened', sessionId: sessionId ?? null, title: known.title, turns });
        this.queue.tell();
        if (live !== undefined) {
            this.follow(live);
        }
    }

    /** Shows a running turn from its start. */
    private follow(live: Live): void {
        this.events?.dispose();
        this.post({ kind: 'began', prompt: live.prompt, attachments: live.attachments, images: live.images });
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
            // The result of an attached turn that failed is not an error of its request.
            if (result.stopReason === 'error') {
                this.post({ kind: 'failed', text: result.text, fixes: fixesFor(result.text, true) });
            }
        }
        await this.findings.take(result, live.action === 'review');
        this.keep(live, result.turnId, result);
        await Promise.all([this.tellUsage(), this.tellSessions()]).catch(() => undefined);
    }

    private async failed(live: Live, text: string): Promise<void> {
        const { turnId, sessionId } = live.running;
        if (turnId !== undefined) {
            this.keep(live, turnId, undefined);
        }
        if (this.live === live) {
            this.live = undefined;
            // A failed turn is part of its session, so the next prompt continues that session.
            await this.kept.update(KEPT, sessionId ?? this.sessionId);
            this.post({ kind: 'failed', text, fixes: fixesFor(text, true) });
        }
    }

    private keep({ prompt, attachments, places, action }: Live, turnId: string, result: TurnResult | undefined): void {
        this.results.keep(turnId, result, action === undefined ? {} : { prompt, attachments });
        if (places !== undefined) {
            this.results.keepPlaces(turnId, prompt, places);
        }
    }

    /** Returns the stored history; undefined if the session was deleted. */
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

function liveOf(running: Running, prompt: string, { places }: Along, images: readonly SentImage[]): Live {
    return { running, prompt, attachments: places.map(labelled), images, places, action: undefined, finished: false };
}
