/** The turns of this window: starting and watching them, and what all of them together look like. */

import { randomUUID } from 'node:crypto';
import { type Disposable, type Event, EventEmitter } from 'vscode';
import type { WorkDoneProgressBegin, WorkDoneProgressEnd, WorkDoneProgressReport } from 'vscode-languageclient/node';
import type { Client } from './client';
import type { ActionArgument, Attached, PartialResult, TurnCommand, TurnResult, TurnStarted } from './protocol';
import { type Look, Looks } from './looks';

export type Token = string | number;
export type WorkDone = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

/** Actions whose text is shown in passing: what they are about is the edit. */
const EDITING: ReadonlySet<string> = new Set(['fix', 'edit', 'complete', 'document', 'test', 'simplify']);

/** One turn. Who subscribes to `onEvent` late gets first what there was. */
export interface Running {
    readonly command: string;
    /** Known at once where the turn was attached to, else when it has ended, also where it failed after it had begun. */
    readonly turnId: string | undefined;
    readonly sessionId: string | undefined;
    readonly onEvent: Event<PartialResult>;
    /** Rejects with a sentence for the user where the turn could not begin or failed. */
    readonly result: Promise<TurnResult>;
    /** The result is then one with the stop reason `cancelled`. */
    cancel(): void;
}

class Turn implements Running {
    turnId: string | undefined;
    sessionId: string | undefined;
    result!: Promise<TurnResult>;
    private readonly past: PartialResult[] = [];
    private readonly events = new EventEmitter<PartialResult>();

    constructor(
        readonly command: string,
        readonly cancel: () => void,
    ) {}

    readonly onEvent: Event<PartialResult> = (listener, context, disposables) => {
        for (const event of [...this.past]) {
            listener.call(context, event);
        }
        return this.events.event(listener, context, disposables);
    };

    take(event: PartialResult): void {
        this.past.push(event);
        this.events.fire(event);
    }
}

export class Turns implements Disposable {
    private readonly looks = new Looks();
    private readonly started = new EventEmitter<Running>();
    private readonly changed = new EventEmitter<void>();

    /** How all running turns look together. */
    readonly onDidChange: Event<Look> = this.looks.onDidChange;
    /** A turn that this window has asked for, from the chat or by a code action. */
    readonly onDidStart: Event<Running> = this.started.event;

    /** The server goes by settings that have been changed: what the next turn uses may be another. */
    readonly onDidConfigure: Event<void> = this.changed.event;

    /** `connect` answers with the client when its server runs, and rejects with a sentence when it cannot. */
    constructor(private readonly connect: () => Promise<Client>) {}

    get state(): Look {
        return this.looks.now;
    }

    /** Starts a turn; its text, thinking and tools come by `onEvent`, also when nobody listens yet. */
    start(command: TurnCommand, argument: object): Running {
        const work = `thinklsp-vscode-${randomUUID()}`;
        const partial = `${work}-partial`;
        let cancelled = false;
        const turn = new Turn(command, () => {
            cancelled = true;
            this.cancelWork(work);
        });
        turn.result = this.connect().then(async client => {
            const watched = [
                client.onWork(work, value => {
                    // Before it has begun there is nothing to cancel yet.
                    if (value.kind === 'begin' && cancelled) {
                        this.cancelWork(work);
                    }
                }),
                client.onPartial(partial, event => turn.take(event)),
            ];
            try {
                const takesPartial = command !== 'thinklsp.send';
                const whole = takesPartial ? { ...argument, partialResultToken: partial } : argument;
                const result = await client.execute<TurnResult>(command, whole, work);
                turn.turnId = result.turnId;
                turn.sessionId = result.sessionId;
                return result;
            } catch (error) {
                const { turnId, sessionId } = ((error as { data?: unknown }).data ?? {}) as Partial<TurnStarted>;
                turn.turnId = turnId;
                turn.sessionId = sessionId;
                throw error;
            } finally {
                this.looks.forget(work);
                watched.forEach(one => one.dispose());
            }
        });
        turn.result.catch(() => undefined);
        this.started.fire(turn);
        return turn;
    }

    /** The same with the editor's own progress and its Cancel; the text goes where the server puts it, for what is there
     * to be read to a chat document; the user's own actions may be such, too. Undefined: the command was answered without
     * a turn. Rejects where it could not begin. */
    async launch(command: TurnCommand, argument: ActionArgument): Promise<Running | undefined> {
        const watched = await this.watch(command);
        const partialResultToken = EDITING.has(argument.name ?? 'edit') ? watched.token : undefined;
        const answer = await watched.asked<Partial<TurnStarted> | null>(command, { ...argument, partialResultToken });
        if (!answer?.turnId) {
            watched.drop();
            return undefined;
        }
        if (partialResultToken === undefined) {
            watched.drop();
            return this.attach(answer.sessionId);
        }
        watched.turn.turnId = answer.turnId;
        watched.turn.sessionId = answer.sessionId;
        this.started.fire(watched.turn);
        return watched.turn;
    }

    /** The turn that runs in this session, the newest of all where none is named; undefined: none does. */
    async attach(sessionId?: string): Promise<Running | undefined> {
        const watched = await this.watch('thinklsp.sessions');
        const argument = { op: 'attach', sessionId, partialResultToken: watched.token };
        const answer = await watched.asked<Attached>('thinklsp.sessions', argument);
        if (!answer.attached) {
            watched.drop();
            return undefined;
        }
        watched.turn.turnId = answer.turnId ?? undefined;
        watched.turn.sessionId = answer.sessionId ?? undefined;
        return watched.turn;
    }

    /** A command of the server that answers at once. Rejects with a sentence for the user. */
    async ask<T>(command: string, argument: object = {}): Promise<T> {
        return (await this.connect()).execute<T>(command, argument);
    }

    /** Every work-done progress of the server comes by here, also that of turns started by code actions. */
    show(token: Token, value: WorkDone): void {
        this.looks.show(token, value);
    }

    /** The server is not there: nothing runs, and why. An empty sentence: it is there again. */
    lost(sentence: string): void {
        this.looks.lost(sentence);
    }

    configured(): void {
        this.changed.fire();
    }

    dispose(): void {
        this.looks.dispose();
        this.changed.dispose();
        this.started.dispose();
    }

    /** A turn that is known by what comes to `token`, its result too. `asked` lets go of it where the command fails. */
    private async watch(command: string) {
        const client = await this.connect();
        const token = `thinklsp-vscode-${randomUUID()}`;
        const turn = new Turn(command, () => {
            this.ask('thinklsp.cancel', { turnId: turn.turnId }).catch(() => undefined);
        });
        let drop = (_said?: string) => {};
        turn.result = new Promise((resolve, reject) => {
            const progress = client.onPartial(token, event => {
                turn.take(event);
                if (event.kind === 'finished') {
                    resolve(event.result);
                    drop();
                }
            });
            const gone = client.onDidChangeState(() => drop('The server has ended.'));
            drop = (said = 'The turn did not start.') => {
                progress.dispose();
                gone.dispose();
                reject(new Error(said));
            };
        });
        turn.result.catch(() => undefined);
        const asked = async <T>(what: string, argument: object): Promise<T> => {
            try {
                return await this.ask<T>(what, argument);
            } catch (error) {
                drop();
                throw error;
            }
        };
        return { token, turn, asked, drop: () => drop() };
    }

    private cancelWork(token: Token): void {
        void this.connect().then(
            client => client.cancelWork(token),
            () => undefined,
        );
    }
}
