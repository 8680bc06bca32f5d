/** The language server of this window: started, watched, restarted. */

import { type Disposable, type ExtensionContext, type LogOutputChannel, window } from 'vscode';
import { LanguageClient } from 'vscode-languageclient/node';
import type { Turns } from './turns';

export class Server implements Disposable {
    readonly log: LogOutputChannel = window.createOutputChannel('thinklsp', { log: true });
    private turns: Turns | undefined;
    private starting: Promise<LanguageClient> | undefined;

    constructor(private readonly context: ExtensionContext) {}

    watchedBy(turns: Turns): void {
        this.turns = turns;
    }

    /** The client, when its server runs. Rejects with a sentence when it cannot. */
    ready(): Promise<LanguageClient> {
        this.starting ??= this.start();
        return this.starting;
    }

    dispose(): void {
        void this.starting?.then(client => client.stop()).catch(() => undefined);
        this.log.dispose();
    }

    private async start(): Promise<LanguageClient> {
        this.log.debug(`extension ${this.context.extension.id}`);
        const client = new LanguageClient(
            'thinklsp',
            'thinklsp',
            { command: 'thinklsp' },
            {
                documentSelector: [{ scheme: 'file' }, { scheme: 'untitled' }],
                outputChannel: this.log,
                middleware: {
                    handleWorkDoneProgress: (token, value, next) => {
                        this.turns?.show(token, value);
                        next(token, value);
                    },
                },
            },
        );
        await client.start();
        return client;
    }
}
