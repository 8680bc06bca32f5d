/** Finds, starts, watches and restarts the language server of this window. */

import { homedir } from 'node:os';
import { ConfigurationTarget, type Disposable, type ExtensionContext, Uri, commands, window, workspace } from 'vscode';
import type { Middleware } from 'vscode-languageclient/node';
import type { Client, EditReview, Host, Messages } from './client';
import { configured } from './configured';
import { findPython, findServer } from './finding';
import { keys } from './keys';
import { PrivateServer } from './private-server';

const NAME = 'thinklsp';

export interface Watcher {
    /** Called with an error message when the server is gone, and with an empty one when it runs. */
    lost(sentence: string): void;
    /** Called when the server has received changed settings. */
    configured(): void;
}

export class Server implements Disposable {
    readonly log = window.createOutputChannel(NAME, { log: true });
    private readonly own: PrivateServer;
    private current: Promise<Client> | undefined;
    private askedToUpdate = false;
    private readonly subscriptions: Disposable[];

    /** `middleware`: the message handlers of the other parts of the extension. */
    constructor(
        private readonly context: ExtensionContext,
        private readonly watcher: Watcher,
        private readonly middleware: Middleware,
        private readonly review: EditReview,
        private readonly messages: Messages,
    ) {
        this.own = new PrivateServer(context, this.log);
        this.subscriptions = [
            workspace.onDidGrantWorkspaceTrust(() => this.afterTrust()),
            workspace.onDidChangeConfiguration(changed => {
                // The server learns at its start who reviews edits.
                if (this.current !== undefined && changed.affectsConfiguration('thinklsp.ui.review')) {
                    void this.restart();
                }
            }),
        ];
    }

    /** Resolves to the client when the server runs; rejects with a message if the server cannot start. */
    ready(): Promise<Client> {
        this.current ??= this.started();
        return this.current;
    }

    /** Starts a new server process with the current settings and keys. */
    async restart(): Promise<void> {
        const before = this.current;
        this.current = this.stopped(before).then(() => this.started());
        await this.current.catch(() => undefined);
    }

    showLog(): void {
        this.log.show(true);
    }

    /** Stops the server; resolves when its process has ended. */
    stop(): Promise<void> {
        return this.stopped(this.current);
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
        this.log.dispose();
    }

    private async stopped(client: Promise<Client> | undefined): Promise<void> {
        try {
            await (await client)?.dispose();
        } catch {
            // The server never ran or has already ended.
        }
    }

    private async started(): Promise<Client> {
        if (process.platform === 'win32') {
            const sentence = 'thinklsp does not run on Windows. Open the folder in WSL.';
            this.watcher.lost(sentence);
            void window.showErrorMessage(sentence);
            throw new Error(sentence);
        }
        const program = await findServer(this.own, this.tell);
        if (program === undefined) {
            const sentence = 'The thinklsp server was not found. Install it or choose its location.';
            this.watcher.lost(sentence);
            void this.offerInstall(sentence);
            throw new Error(sentence);
        }
        const line = [program.command, ...program.args].join(' ');
        this.log.info(`Starting ${line} (found by ${program.how}).`);
        const env = { ...process.env, ...(await keys(this.context)) };
        // In the opened folder Python could import modules of that folder.
        const options = { cwd: this.context.extensionPath, env };
        // Imported only now: this bundle is the largest part, and the editor waits while it loads.
        const { Client } = await import('./client.js');
        const client = new Client({ ...program, options }, this.host());
        try {
            await client.start();
            void this.offerUpdate(program.command);
        } catch (error) {
            const sentence = `The thinklsp server (${line}) did not start. See its log for the reason.`;
            this.log.error(String(error));
            this.watcher.lost(sentence);
            void this.offerRestart(sentence);
            throw new Error(sentence, { cause: error });
        }
        return client;
    }

    /** Asks once per window, when the extension was updated and its own server was not. */
    private async offerUpdate(python: string): Promise<void> {
        const own = await this.own.find();
        if (this.askedToUpdate || own?.python !== python || !own.isOutdated) {
            return;
        }
        this.askedToUpdate = true;
        const update = 'Update';
        const sentence = 'The thinklsp server of this extension is older than the extension.';
        if ((await window.showInformationMessage(sentence, update)) === update) {
            await this.installOwn();
        }
    }

    private host(): Host {
        return {
            log: this.log,
            middleware: this.middleware,
            messages: this.messages,
            review: workspace.getConfiguration('thinklsp.ui').get('review') === 'preview' ? undefined : this.review,
            settings: () => configured(this.context),
            runs: is => {
                void commands.executeCommand('setContext', 'thinklsp.running', is);
                if (is) {
                    this.watcher.lost('');
                } else {
                    this.messages.drop();
                }
            },
            configured: () => this.watcher.configured(),
            ended: again => {
                if (again) {
                    this.watcher.lost('The thinklsp server stopped unexpectedly and is being restarted.');
                } else {
                    this.givenUp('The thinklsp server stopped too often and was not restarted. See its log for the reason.');
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
        // The newly trusted folder may contain the server program.
        this.current?.catch(() => this.restart());
    }

    private readonly tell = (said: string): void => this.log.info(`Looked for the server: ${said}.`);

    private async offerInstall(sentence: string): Promise<void> {
        const hasWheel = (await this.own.wheel()) !== undefined;
        const install = hasWheel ? 'Install' : 'How to install';
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

    /** Installs the server that this extension contains, after a yes, and starts it. Shows how to install it otherwise.
     * Nothing is installed by its name from a package index: the name is not registered there yet. */
    async install(): Promise<void> {
        if ((await this.own.wheel()) === undefined) {
            // The packager writes the name in lower case.
            await commands.executeCommand('markdown.showPreview', Uri.joinPath(this.context.extensionUri, 'readme.md'));
            return;
        }
        const detail = 'pip loads about 16 MB of packages and installs them, with the server, into a folder of this extension.';
        const yes = 'Install';
        if ((await window.showInformationMessage('Install the thinklsp server?', { modal: true, detail }, yes)) === yes) {
            await this.installOwn();
        }
    }

    private async installOwn(): Promise<void> {
        const python = await findPython(this.tell);
        if (python === undefined) {
            await this.offerLog('The server needs Python 3.11 or newer with the module venv, and none was found.');
            return;
        }
        try {
            if (await this.own.install(python)) {
                await this.restart();
            }
        } catch (error) {
            const again = 'Try again';
            if ((await this.offerLog(error instanceof Error ? error.message : String(error), again)) === again) {
                await this.installOwn();
            }
        }
    }

    /** Removes the extension's own environment, and stops the server if it runs there. */
    async removeOwn(): Promise<void> {
        const yes = 'Remove';
        const question = 'Remove the server that this extension has installed?';
        if ((await window.showWarningMessage(question, { modal: true }, yes)) === yes) {
            await this.stop();
            await this.own.remove();
            await this.restart();
        }
    }

    /** Ask for the server program, store its path and start it. */
    async choose(): Promise<void> {
        const picked = await window.showOpenDialog({
            title: 'Choose the thinklsp program or a Python that has it installed',
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
        const restart = 'Restart';
        if ((await this.offerLog(sentence, restart)) === restart) {
            await this.restart();
        }
    }

    private async offerLog(sentence: string, ...buttons: string[]): Promise<string | undefined> {
        const log = 'Show log';
        const chosen = await window.showErrorMessage(sentence, ...buttons, log);
        if (chosen === log) {
            this.showLog();
        }
        return chosen;
    }
}
