/** The chat in the side bar: the web view, and what its messages ask for. */

import { randomBytes } from 'node:crypto';
import {
    Disposable,
    type ExtensionContext,
    Uri,
    type Webview,
    type WebviewView,
    type WebviewViewProvider,
    commands,
    env,
    window,
    workspace,
} from 'vscode';
import type { Client } from '../client';
import type { Look } from '../looks';
import type { Outcomes } from '../outcomes';
import type { Choice } from '../protocol';
import { sentence } from '../said';
import type { Turns } from '../turns';
import { found, labelled, offers, selected } from './context';
import { Conversation } from './conversation';
import { CHOICES, type Fix, type FromView, type ToView, isChoice, isFromView } from './messages';
import { SlashCommands } from './slash';
import { slashed } from './words';

export const CHAT_VIEW = 'thinklsp.chatView';

const FIXES: Record<Fix, () => Thenable<unknown>> = {
    setKey: () => commands.executeCommand('thinklsp.ui.setKey'),
    doctor: () => commands.executeCommand('thinklsp.ui.doctor'),
    thinkingDisplay: () => commands.executeCommand('workbench.action.openSettings', 'thinklsp.thinking.display'),
};
const DELETE = 'Delete';

export class ChatView implements WebviewViewProvider, Disposable {
    private readonly conversation: Conversation;
    private readonly slash: SlashCommands;
    private readonly subscriptions: Disposable[];
    private view: WebviewView | undefined;
    private wanted: ToView | undefined;
    /** The view has been told nothing yet, because the server was not there. */
    private unanswered = false;

    /** `changed`: effort, thinking or model is another. */
    constructor(
        private readonly context: ExtensionContext,
        private readonly turns: Turns,
        private readonly outcomes: Outcomes,
        connect: () => Promise<Client>,
        private readonly changed: () => void,
    ) {
        this.conversation = new Conversation(turns, message => this.post(message), context.workspaceState);
        this.slash = new SlashCommands(turns, connect);
        this.subscriptions = [
            this.conversation,
            window.registerWebviewViewProvider(CHAT_VIEW, this),
            commands.registerCommand('thinklsp.ui.newChat', () => this.conversation.begin()),
            commands.registerCommand('thinklsp.ui.sessions', () => this.showSessions()),
            turns.onDidChange(look => {
                this.post({ kind: 'status', text: worded(look) });
                if (look.kind === 'idle') {
                    // A turn has ended, or the server was started anew, perhaps with a key.
                    (this.unanswered ? this.ready() : this.tellChoices()).catch(() => undefined);
                }
            }),
            window.onDidChangeTextEditorSelection(() => this.tellSelection()),
            window.onDidChangeActiveTextEditor(() => this.tellSelection()),
            turns.onDidConfigure(() => {
                this.tellSummaries();
                this.tellChoices().catch(() => undefined);
            }),
        ];
    }

    resolveWebviewView(view: WebviewView): void {
        this.view = view;
        const dist = Uri.joinPath(this.context.extensionUri, 'dist');
        view.webview.options = { enableScripts: true, localResourceRoots: [dist] };
        view.webview.onDidReceiveMessage((message: unknown) => {
            if (isFromView(message)) {
                this.take(message).catch(error => this.post({ kind: 'failed', text: sentence(error), fix: null }));
            }
        });
        view.onDidDispose(() => {
            this.view = undefined;
        });
        view.webview.html = page(view.webview, dist);
    }

    dispose(): void {
        Disposable.from(...this.subscriptions).dispose();
    }

    private async take(message: FromView): Promise<void> {
        const { conversation } = this;
        switch (message.kind) {
            case 'ready':
                return this.ready();
            case 'ask':
                return this.ask(message);
            case 'stop':
                return conversation.stop();
            case 'begin':
                return conversation.begin();
            case 'sessions':
                return this.showSessions();
            case 'open':
                await conversation.open(message.sessionId);
                return this.tellChoices();
            case 'delete':
                return this.delete(message.sessionId);
            case 'fork': {
                const { sessionId } = await this.turns.ask<{ sessionId: string }>('thinklsp.sessions', {
                    op: 'fork',
                    sessionId: message.sessionId,
                });
                await conversation.open(sessionId);
                return conversation.tellSessions();
            }
            case 'choose': {
                const { key, value } = message;
                const { sessionId } = conversation;
                const answer = await this.turns.ask<Choice>(`thinklsp.${key}`, { value, sessionId });
                if (answer.notice !== null) {
                    this.post({ kind: 'told', level: 'info', text: answer.notice });
                }
                this.changed();
                return this.tellChoices();
            }
            case 'offers':
                return this.post({ kind: 'offers', id: message.id, offers: await offers(message.word) });
            case 'toolDetails':
                return conversation.toolDetails(message.toolCallId);
            case 'file':
                await window.showTextDocument(Uri.parse(message.uri));
                return;
            case 'diff':
                return this.outcomes.compare(message.turnId, message.uri);
            case 'apply':
                return conversation.apply(message.turnId);
            case 'copy':
                return env.clipboard.writeText(message.text);
            case 'insert':
                return insert(message.text);
            case 'link':
                return follow(message.url);
            case 'fix':
                await FIXES[message.fix]();
        }
    }

    private async ready(): Promise<void> {
        this.unanswered = true;
        this.tellSummaries();
        this.tellSelection();
        await this.conversation.show();
        this.unanswered = false;
        this.post({ kind: 'status', text: worded(this.turns.state) });
        await Promise.all([this.tellChoices(), this.conversation.tellSessions()]);
        if (this.wanted !== undefined) {
            this.post(this.wanted);
            this.wanted = undefined;
        }
    }

    private async ask({ prompt, mode, selection }: Extract<FromView, { kind: 'ask' }>): Promise<void> {
        const command = slashed(prompt);
        if (this.conversation.busy) {
            this.post({ kind: 'told', level: 'warning', text: 'A turn is running. Stop it or wait for it first.' });
        } else if (command === null) {
            await this.conversation.ask(prompt, mode, selection);
        } else if ('problem' in command) {
            this.post({ kind: 'told', level: 'warning', text: command.problem });
        } else if (command.name === 'clear') {
            await this.conversation.begin();
        } else if (command.name === 'sessions') {
            await this.showSessions();
        } else {
            const text = await this.slash.run(command.name, command.argument, this.conversation.sessionId);
            this.post({ kind: 'told', level: 'info', text });
            await Promise.all([this.tellChoices(), this.conversation.tellUsage()]);
        }
    }

    private async showSessions(): Promise<void> {
        if (this.view === undefined) {
            this.wanted = { kind: 'show', what: 'sessions' };
            await commands.executeCommand(`${CHAT_VIEW}.focus`);
            return;
        }
        await this.conversation.tellSessions();
        this.post({ kind: 'show', what: 'sessions' });
    }

    private async delete(sessionId: string): Promise<void> {
        const detail = 'It is deleted for good, with everything that was said in it.';
        if ((await window.showWarningMessage('Delete this session?', { modal: true, detail }, DELETE)) !== DELETE) {
            return;
        }
        await this.turns.ask('thinklsp.sessions', { op: 'delete', sessionId });
        if (sessionId === this.conversation.sessionId) {
            await this.conversation.begin();
        }
        await this.showSessions();
    }

    private async tellChoices(): Promise<void> {
        const { sessionId } = this.conversation;
        const answers = await Promise.all(CHOICES.map(key => this.turns.ask<unknown>(`thinklsp.${key}`, { sessionId })));
        const [effort, thinking, model] = answers;
        if (isChoice(effort) && isChoice(thinking) && isChoice(model)) {
            this.post({ kind: 'choices', effort, thinking, model });
        }
    }

    private tellSelection(): void {
        const place = selected();
        this.post({ kind: 'selection', label: place === undefined ? null : labelled(place) });
    }

    private tellSummaries(): void {
        const display = workspace.getConfiguration('thinklsp').get('thinking.display');
        this.post({ kind: 'summaries', shown: display === 'summary' });
    }

    private post(message: ToView): void {
        void this.view?.webview.postMessage(message);
    }
}

/** `thinking · 3 s · 1,204 tokens` as people read it. */
function worded(look: Look): string {
    if (look.kind === 'waiting') {
        return 'Waiting for you';
    }
    if (look.kind !== 'thinking') {
        return '';
    }
    const phase = look.phase.charAt(0).toUpperCase() + look.phase.slice(1);
    return [phase, look.elapsed, look.tokens && `${look.tokens} tokens`].filter(Boolean).join(' · ');
}

async function insert(text: string): Promise<void> {
    const editor = window.activeTextEditor ?? window.visibleTextEditors[0];
    if (editor === undefined) {
        throw new Error('There is no editor to insert the code into: open a file first.');
    }
    await editor.edit(edit => editor.selections.forEach(selection => edit.replace(selection, text)));
    await window.showTextDocument(editor.document, editor.viewColumn);
}

/** A page in the browser, which the editor asks about, or a file of the workspace. Nothing else is opened. */
async function follow(url: string): Promise<void> {
    const uri = Uri.parse(url);
    if (uri.scheme === 'https' || uri.scheme === 'http') {
        await env.openExternal(uri);
        return;
    }
    const file = await found(decodeURIComponent(url.replace(/(#.*|:\d+.*)$/, '')));
    if (file === undefined) {
        throw new Error(`There is no file ${url} in this workspace.`);
    }
    await window.showTextDocument(file);
}

function page(webview: Webview, dist: Uri): string {
    const nonce = randomBytes(18).toString('base64url');
    const at = (name: string): string => webview.asWebviewUri(Uri.joinPath(dist, name)).toString();
    const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src ${webview.cspSource}`;
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>thinklsp</title>
<link rel="stylesheet" href="${at('webview.css')}">
</head>
<body><script nonce="${nonce}" src="${at('webview.js')}"></script></body>
</html>`;
}
