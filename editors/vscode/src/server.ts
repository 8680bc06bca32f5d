/** The language server of this window: found, started, watched, restarted. */

import { homedir } from 'node:os';
import { ConfigurationTarget, type Disposable, type ExtensionContext, Uri, commands, window, workspace } from 'vscode';
import type { Middleware } from 'vscode-languageclient/node';
import type { Client, Host } from './client';
import { configured } from './configured';
import { findServer } from './finding';
import { keys } from './keys';

const NAME = 'thinklsp';

export interface Watcher {
    /** Its server has gone, and why; an empty sentence: it is there. */
    lost(sentence: string): void;
    /** The server has the settings that have just been changed. */
    configured(): void;
}

export class Server implements Disposable {
    readonly log = window.createOutputChannel(NAME, { log: true });
    private current: Promise<Client> | undefined;
    private readonly trusted: Disposable;

    /** `middleware`: what the other parts of this extension do with messages. */
    constructor(
        private readonly context: ExtensionContext,
        private readonly watcher: Watcher,
        private readonly middleware: Middleware,
    ) {
        this.trusted = workspace.onDidGrantWorkspaceTrust(() => this.afterTrust());
    }

    /** The client, when its server runs. Rejects with a sentence when it cannot be started. */
    ready(): Promise<Client> {
        this.current ??= this.started();
        return this.current;
    }

    /** Another process, with what settings and keys say now. */
    async restart(): Promise<void> {
        const before = this.current;
        this.current = this.stopped(before).then(() => this.started());
        await this.current.catch(() => undefined);
    }

    showLog(): void {
        this.log.show(true);
    }

    /** Resolves when the process has been asked to end and did. */
    stop(): Promise<void> {
        return this.stopped(this.current);
    }

    dispose(): void {
        this.trusted.dispose();
        this.log.dispose();
    }

    private async stopped(client: Promise<Client> | undefined): Promise<void> {
        try {
            await (await client)?.dispose();
        } catch {
            // It never ran, or has gone already.
        }
    }

    private async started(): Promise<Client> {
        const program = await findServer(said => this.log.info(`Looked for the server: ${said}.`));
        if (program === undefined) {
            const sentence = 'The thinklsp server was not found. Install it, or choose where it is.';
            this.watcher.lost(sentence);
            void this.offerInstall(sentence);
            throw new Error(sentence);
        }
        const line = [program.command, ...program.args].join(' ');
        this.log.info(`Starting ${line} (found by ${program.how}).`);
        const env = { ...process.env, ...(await keys(this.context)) };
        // Not the opened folder: Python would import from there.
        const options = { cwd: this.context.extensionPath, env };
        // Not before: it is more than all the rest, and the editor waits while it is read.
        const { Client } = await import('./client.js');
        const client = new Client({ ...program, options }, this.host());
        try {
            await client.start();
        } catch (error) {
            const sentence = `The thinklsp server (${line}) did not start; its log says why.`;
            this.log.error(String(error));
            this.watcher.lost(sentence);
            void this.offerRestart(sentence);
            throw new Error(sentence, { cause: error });
        }
        return client;
    }

    private host(): Host {
        return {
            log: this.log,
            middleware: this.middleware,
            settings: () => configured(this.context),
            runs: is => {
                void commands.executeCommand('setContext', 'thinklsp.running', is);
                if (is) {
                    this.watcher.lost('');
                }
            },
            configured: () => this.watcher.configured(),
            ended: again => {
                if (again) {
                    this.watcher.lost('The thinklsp server has ended; it is starting again.');
                } else {
                    this.givenUp('The thinklsp server has ended too often and was not started again; its log says why.');
                }
            },
        };
    }

    private givenUp(sentence: string): void {
        this.watcher.lost(sentence);
        this.current = Promise.reject(new Error(sentence));
        this.current.catch(() => undefined);
        void this.offerRestart(sentence);
    }

    private afterTrust(): void {
        // What was out of bounds may hold the server.
        this.current?.catch(() => this.restart());
    }

    private async offerInstall(sentence: string): Promise<void> {
        const install = 'How to install';
        const choose = 'Choose…';
        const log = 'Show log';
        switch (await window.showErrorMessage(sentence, install, choose, log)) {
            case install:
                return this.install();
            case choose:
                return this.choose();
            case log:
                return this.showLog();
            default:
        }
    }

    /** Show the page that says how to install the server. No package index is asked: nobody owns the name there yet. */
    async install(): Promise<void> {
        await commands.executeCommand('markdown.showPreview', Uri.joinPath(this.context.extensionUri, 'README.md'));
    }

    /** Ask where the server is, remember it and start it. */
    async choose(): Promise<void> {
        const picked = await window.showOpenDialog({
            title: 'The thinklsp program, or a Python in which it is installed',
            openLabel: 'Choose',
            defaultUri: Uri.file(homedir()),
        });
        if (picked?.[0] !== undefined) {
            const settings = workspace.getConfiguration('thinklsp.ui');
            await settings.update('server.path', picked[0].fsPath, ConfigurationTarget.Global);
            await this.restart();
        }
    }

    private async offerRestart(sentence: string): Promise<void> {
        const restart = 'Start again';
        const log = 'Show log';
        const chosen = await window.showErrorMessage(sentence, restart, log);
        if (chosen === restart) {
            await this.restart();
        } else if (chosen === log) {
            this.showLog();
        }
    }
}
