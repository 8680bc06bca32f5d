/** The language client: a bundle of its own, loaded when the server is about to start. Others import its types only. */

import type { Disposable, LogOutputChannel } from 'vscode';
import {
    CloseAction,
    type CloseHandlerResult,
    DidChangeConfigurationNotification,
    type ErrorHandler,
    LanguageClient,
    type LanguageClientOptions,
    type Middleware,
    ProgressType,
    RevealOutputChannelOn,
    State,
    WorkDoneProgress,
    WorkDoneProgressCancelNotification,
} from 'vscode-languageclient/node';
import { Bridge } from './bridge';
import type { PartialResult } from './protocol';
import type { Token, WorkDone } from './turns';

const NAME = 'thinklsp';
const PARTIAL = new ProgressType<PartialResult>();

/** What the process is started with. */
export interface Start {
    command: string;
    args: string[];
    options: { cwd: string; env: object };
}

/** Who has the client made: what it is told of the server. */
export interface Host {
    readonly log: LogOutputChannel;
    /** What other parts do with messages. */
    readonly middleware: Middleware;
    /** As they are now. */
    settings(): object;
    runs(is: boolean): void;
    /** The server has the settings that have just been changed. */
    configured(): void;
    /** It has ended; true: it is started again. */
    ended(again: boolean): void;
}

export class Client extends LanguageClient {
    constructor(start: Start, host: Host) {
        const watch = new Watch(host);
        super(NAME, NAME, start, clientOptions(host, watch));
        watch.client = this;
        this.registerFeature(new Bridge(this));
        this.onDidChangeState(change => host.runs(change.newState === State.Running));
    }

    /** A command of the server. With a token of work done a turn's answer comes at its end. */
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
        // Its own pop-ups carry stack traces; what the user has to know is told in sentences.
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        initializationOptions: () => host.settings(),
        // Failures to start are told by who starts it, with a way out.
        initializationFailedHandler: () => false,
        errorHandler: watch,
        middleware: {
            ...host.middleware,
            workspace: {
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

/** The client's own limits of restarts, told in our words. */
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
            throw new Error('the client is made before it runs');
        }
        this.usual ??= this.client.createDefaultErrorHandler();
        return this.usual;
    }
}
