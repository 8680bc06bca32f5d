/** Starts and watches the turns of this window, and combines their progress into one state. */

import { randomUUID } from 'node:crypto';
import { type Disposable, type Event, EventEmitter } from 'vscode';
import type {
    Middleware,
    WorkDoneProgressBegin,
    WorkDoneProgressEnd,
    WorkDoneProgressReport,
} from 'vscode-languageclient/node';
import type { Client } from './client';
import type { ActionArgument, Attached, PartialResult, TurnCommand, TurnResult, TurnStarted } from './protocol';
import { type Look, Looks } from './looks';

/** The tokens of this extension begin with it; those that the server creates do not. */
const OWN = 'thinklsp-vscode-';

export type Token = string | number;
export type WorkDone = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

/** One running turn. A late subscriber of `onEvent` first receives the earlier events. */
export interface Running {
    readonly command: string;
    /** Known at once for an attached turn, otherwise when the turn has ended or failed after its start. */
    readonly turnId: string | undefined;
    readonly sessionId: string | undefined;
    readonly onEvent: Event<PartialResult>;
    /** Resolves when the turn ends; rejects with a message for the user if it fails or cannot start. */
    readonly result: Promise<TurnResult>;
    /** Cancels the turn, whose result then has the stop reason `cancelled`. */
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

    /** Fires with the combined state of all running turns. */
    readonly onDidChange: Event<Look> = this.looks.onDidChange;
    /** Fires for each turn that this window starts, from the chat or by a code action. */
    readonly onDidStart: Event<Running> = this.started.event;

    /** Fires after the server received changed settings, which may change the model of the next turn. */
    readonly onDidConfigure: Event<void> = this.changed.event;

    /** `connect` resolves to the client when the server runs and rejects with a message if it cannot start. */
    constructor(private readonly connect: () => Promise<Client>) {}

    get state(): Look {
        return this.looks.now;
    }

    /** Starts a turn. `onEvent` delivers its text, thinking and tools, also to later subscribers. */
    start(command: TurnCommand, argument: object): Running {
        const work = `${OWN}${randomUUID()}`;
        const partial = `${work}-partial`;
        let cancelled = false;
        const turn = new Turn(command, () => {
            cancelled = true;
            this.cancelWork(work);
        });
        turn.result = this.connect().then(async client => {
            const watched = [
                client.onWork(work, value => {
                    // A turn that has not started cannot be cancelled.
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

    /** Starts an action with the editor's own progress and Cancel button. The server makes no chat document, because the
     * answer is shown here. Resolves to undefined if the command ran no turn; rejects if the turn could not start. */
    async launch(command: TurnCommand, argument: ActionArgument): Promise<Running | undefined> {
        const watched = await this.watch(command);
        const whole = { ...argument, partialResultToken: watched.token };
        const answer = await watched.asked<Partial<TurnStarted> | null>(command, whole);
        if (!answer?.turnId) {
            watched.drop();
            return undefined;
        }
        watched.turn.turnId = answer.turnId;
        watched.turn.sessionId = answer.sessionId;
        this.started.fire(watched.turn);
        return watched.turn;
    }

    /** Returns the running turn of a session, by default the newest running turn; undefined if there is none. */
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

    /** Runs a command of the server that responds at once. Rejects with a message for the user. */
    async ask<T>(command: string, argument: object = {}): Promise<T> {
        return (await this.connect()).execute<T>(command, argument);
    }

    /** Receives all work-done progress of the server, also of turns that code actions started. `next` passes it on to the
     * client library, which would show it once more beside the status bar item if it received the beginning. */
    readonly show: NonNullable<Middleware['handleWorkDoneProgress']> = (token, value, next) => {
        this.looks.show(token, value);
        if (value.kind !== 'begin' || String(token).startsWith(OWN)) {
            next(token, value);
        }
    };

    /** Ends all turns with an error message because the server is gone; an empty message clears the error. */
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

    /** Watches a turn by the partial results of a new token. `asked` stops watching if the command fails. */
    private async watch(command: string) {
        const client = await this.connect();
        const token = `${OWN}${randomUUID()}`;
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
            const gone = client.onDidChangeState(() => drop('The server ended.'));
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
