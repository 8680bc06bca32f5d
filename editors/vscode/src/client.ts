/** The language client, in a separate bundle that is loaded when the server starts. Other modules import only its types. */

import type { CancellationToken, Disposable, LogOutputChannel } from 'vscode';
import {
    CloseAction,
    type CloseHandlerResult,
    DidChangeConfigurationNotification,
    type ErrorHandler,
    LanguageClient,
    type LanguageClientOptions,
    type MessageActionItem,
    type Middleware,
    ProgressType,
    RevealOutputChannelOn,
    ShowMessageNotification,
    type ShowMessageParams,
    ShowMessageRequest,
    type ShowMessageRequestParams,
    State,
    WorkDoneProgress,
    WorkDoneProgressCancelNotification,
} from 'vscode-languageclient/node';
import { Bridge } from './bridge';
import type { PartialResult } from './protocol';
import type { ReviewAnswer, ReviewParams } from './review/review';
import type { Token, WorkDone } from './turns';

const NAME = 'thinklsp';
const PARTIAL = new ProgressType<PartialResult>();

/** The command line and options of the server process. */
export interface Start {
    command: string;
    args: string[];
    options: { cwd: string; env: object };
}

/** The owner of the client, which receives the events of the server. */
export interface Host {
    readonly log: LogOutputChannel;
    /** The message handlers of the other parts of the extension. */
    readonly middleware: Middleware;
    /** The messages and questions of the server. */
    readonly messages: Messages;
    /** The review of edits in the editor; undefined if the editor's refactor preview is used instead. */
    readonly review: EditReview | undefined;
    /** Returns the current settings. */
    settings(): object;
    runs(is: boolean): void;
    /** Called when the server has received changed settings. */
    configured(): void;
    /** Called when the server has ended; `again` is true if it is restarted. */
    ended(again: boolean): void;
}

export interface Messages {
    show(message: ShowMessageParams): void;
    /** Asks the user a question; null if it is not answered. */
    ask(question: ShowMessageRequestParams, token: CancellationToken): Promise<MessageActionItem | null>;
    /** Ends the open questions. */
    drop(): void;
}

export interface EditReview {
    /** Asks the user which hunks of an edit to keep, before it is written. */
    ask(params: ReviewParams, token: CancellationToken): Promise<ReviewAnswer>;
    /** Applies an edit of the server. */
    apply: NonNullable<NonNullable<Middleware['workspace']>['handleApplyEdit']>;
}

export class Client extends LanguageClient {
    constructor(start: Start, host: Host) {
        const watch = new Watch(host);
        super(NAME, NAME, start, clientOptions(host, watch));
        watch.client = this;
        this.registerFeature(new Bridge(this, host.review));
        // These replace the library's own handlers, which show a message without help and lose a question with its message.
        this.onNotification(ShowMessageNotification.type, message => host.messages.show(message));
        this.onRequest(ShowMessageRequest.type, (question, token) => host.messages.ask(question, token));
        this.onDidChangeState(change => host.runs(change.newState === State.Running));
    }

    /** Runs a command of the server. With a work-done token, the response of a turn comes at its end. */
    execute<T>(command: string, argument: object, workDoneToken?: Token): Promise<T> {
        return this.sendRequest('workspace/executeCommand', { command, arguments: [argument], workDoneToken });
    }

    onWork(token: Token, listener: (value: WorkDone) => void): Disposable {
        return this.onProgress(WorkDoneProgress.type, token, listener);
    }

    onPartial(token: Token, listener: (value: PartialResult) => void): Disposable {
        return this.onProgress(PARTIAL, token, listener);
    }

    cancelWork(token: Token): Promise<void> {
        return this.sendNotification(WorkDoneProgressCancelNotification.type, { token });
    }
}

function clientOptions(host: Host, watch: Watch): LanguageClientOptions {
    return {
        documentSelector: [{ scheme: 'file' }, { scheme: 'untitled' }],
        outputChannel: host.log,
        // The library's own pop-ups show stack traces; the extension shows its own messages instead.
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        initializationOptions: () => host.settings(),
        // The caller reports a failed start and offers a fix.
        initializationFailedHandler: () => false,
        errorHandler: watch,
        middleware: {
            ...host.middleware,
            workspace: {
                ...(host.review === undefined ? {} : { handleApplyEdit: host.review.apply }),
                configuration: params => params.items.map(item => (item.section === NAME ? host.settings() : null)),
                didChangeConfiguration: async () => {
                    const changed = { settings: { [NAME]: host.settings() } };
                    await watch.client?.sendNotification(DidChangeConfigurationNotification.type, changed);
                    host.configured();
                },
            },
        },
    };
}

/** Restarts the server within the client's default limits, with our own messages. */
class Watch implements ErrorHandler {
    client: LanguageClient | undefined;
    private usual: ErrorHandler | undefined;

    constructor(private readonly host: Host) {}

    error: ErrorHandler['error'] = (error, message, count) => this.handler().error(error, message, count);

    async closed(): Promise<CloseHandlerResult> {
        const { action } = await this.handler().closed();
        this.host.ended(action === CloseAction.Restart);
        return { action, handled: true };
    }

    private handler(): ErrorHandler {
        if (this.client === undefined) {
            throw new Error('The client must be created before it runs');
        }
        this.usual ??= this.client.createDefaultErrorHandler();
        return this.usual;
    }
}
