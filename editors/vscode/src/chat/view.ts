/** The chat in the side bar: the web view and the handlers of its messages. */

import {
    Disposable,
    type ExtensionContext,
    Uri,
    type WebviewView,
    type WebviewViewProvider,
    commands,
    env,
    window,
    workspace,
} from 'vscode';
import type { Client } from '../client';
import { ensureModel, isOffline } from '../first-run';
import { statusText } from '../looks';
import { decide } from '../menu';
import type { Outcomes } from '../outcomes';
import type { Pages } from '../pages';
import type { ActionArgument, Choice } from '../protocol';
import type { Questions } from '../questions';
import type { Changes } from '../review/changes';
import { sentence } from '../said';
import type { Running, Turns } from '../turns';
import { follow, insert, typeInTerminal } from './answer-actions';
import { applyBlock, highlight } from './blocks';
import { ChangedFiles } from './changed-files';
import { fromView, implied, offers, placeOf, toView } from './context';
import { Conversation } from './conversation';
import { Findings } from './findings';
import { fixesFor } from './fixes';
import type { SentImage } from './images';
import { CHOICES, type Fix, type FromView, type ToView, isChoice, isFromView, isModels } from './messages';
import { page } from './page';
import { QuestionCards } from './question-cards';
import { SessionActions } from './session-actions';
import { SlashCommands } from './slash';
import { slashed } from './words';

export const CHAT_VIEW = 'thinklsp.chatView';

const FIXES: Record<Fix, () => Thenable<unknown>> = {
    setKey: () => commands.executeCommand('thinklsp.ui.setKey'),
    openConfig: () => commands.executeCommand('thinklsp.ui.openConfig'),
    thinkingDisplay: () => commands.executeCommand('workbench.action.openSettings', 'thinklsp.thinking.display'),
};
const TITLES: Record<string, string> = { explain: 'Explain this code', review: 'Review this code' };

export class ChatView implements WebviewViewProvider, Disposable {
    private readonly findings = new Findings();
    private readonly conversation: Conversation;
    private readonly slash: SlashCommands;
    private readonly sessions: SessionActions;
    private readonly files: ChangedFiles;
    private readonly cards: QuestionCards;
    private readonly subscriptions: Disposable[];
    private view: WebviewView | undefined;
    private wanted: ToView | undefined;
    /** The last message about the place that the next prompt includes. */
    private shownContext = '';
    /** True until the view has received its first state; the server may not be running yet. */
    private unanswered = false;

    /** Calls `changed` when the effort, the thinking mode or the model was changed. */
    constructor(
        private readonly context: ExtensionContext,
        private readonly turns: Turns,
        outcomes: Outcomes,
        private readonly changes: Changes,
        private readonly pages: Pages,
        private readonly questions: Questions,
        connect: () => Promise<Client>,
        private readonly changed: () => void,
    ) {
        const post = (message: ToView) => this.post(message);
        this.conversation = new Conversation(turns, post, context.workspaceState, this.findings);
        this.sessions = new SessionActions(turns, this.conversation);
        this.files = new ChangedFiles(changes, outcomes, post);
        this.cards = new QuestionCards(questions, post);
        questions.showInChat = isAgain => this.showQuestions(isAgain);
        this.slash = new SlashCommands(turns, connect, () => this.conversation.undo());
        this.subscriptions = [
            this.conversation,
            this.findings,
            this.findings.onDidChange(turnId => this.tellFindings(turnId)),
            changes.onDidChange(() => [...changes.turnIds].forEach(turnId => this.files.tell(turnId))),
            questions.onDidChange(() => this.cards.tell()),
            window.registerWebviewViewProvider(CHAT_VIEW, this),
            commands.registerCommand('thinklsp.ui.newChat', () => this.conversation.begin()),
            commands.registerCommand('thinklsp.ui.sessions', () => this.showSessions()),
            turns.onDidChange(look => {
                this.post({ kind: 'status', text: statusText(look) });
                if (look.kind === 'idle') {
                    // A turn ended, or the server was restarted, possibly with a new key.
                    (this.unanswered ? this.ready() : this.tellChoices()).catch(() => undefined);
                }
            }),
            window.onDidChangeTextEditorSelection(() => this.tellContext()),
            window.onDidChangeActiveTextEditor(() => this.tellContext()),
            turns.onDidConfigure(() => {
                this.tellSummaries();
                this.tellChoices().catch(() => undefined);
            }),
        ];
    }

    /** Whether the user sees the chat and all that was sent to it. */
    get isShown(): boolean {
        return this.view?.visible === true && !this.unanswered;
    }

    resolveWebviewView(view: WebviewView): void {
        this.view = view;
        this.unanswered = true;
        const dist = Uri.joinPath(this.context.extensionUri, 'dist');
        view.webview.options = { enableScripts: true, localResourceRoots: [dist] };
        view.webview.onDidReceiveMessage((message: unknown) => {
            if (isFromView(message)) {
                this.take(message).catch(error => this.post({ kind: 'told', level: 'error', text: sentence(error) }));
            }
        });
        view.onDidDispose(() => {
            this.view = undefined;
            this.askElsewhere();
        });
        view.onDidChangeVisibility(() => view.visible || this.askElsewhere());
        view.webview.html = page(view.webview, dist);
    }

    dispose(): void {
        Disposable.from(...this.subscriptions).dispose();
    }

    /** Shows the answer of a code action as a new conversation, and leaves the focus where it is. */
    async answer(argument: ActionArgument, running: Running): Promise<void> {
        const place = placeOf(argument);
        const name = argument.name ?? '';
        const prompt = argument.instruction || (TITLES[name] ?? name);
        await this.conversation.adopt(running, name, prompt, place === undefined ? [] : [place]);
        if (this.view === undefined) {
            await commands.executeCommand(`${CHAT_VIEW}.focus`);
        } else {
            this.view.show(true);
        }
    }

    private async take(message: FromView): Promise<void> {
        const { conversation } = this;
        switch (message.kind) {
            case 'ready':
                return this.ready();
            case 'ask':
                return this.ask(message);
            case 'retry':
                return this.withModel(message.prompt, () =>
                    conversation.retry(message.turn, message.before, message.prompt, message.mode).then(() => this.tellChoices()),
                );
            case 'answer':
                return this.cards.answer(message.id, message.option);
            case 'stop':
                return conversation.stop();
            case 'unqueue':
                return conversation.unqueue(message.id);
            case 'begin':
                return conversation.begin();
            case 'sessions':
                return this.showSessions();
            case 'open':
                await conversation.open(message.sessionId);
                return this.tellChoices();
            case 'delete':
                return (await this.sessions.delete(message.sessionId)) ? this.showSessions() : undefined;
            case 'fork':
                return this.sessions.fork(message.sessionId);
            case 'rename':
                return this.sessions.rename(message.sessionId, message.title);
            case 'export':
                return this.sessions.export(message.sessionId);
            case 'choose': {
                const { key, value } = message;
                const answer = await decide(this.turns, key, value, conversation.sessionId);
                if (answer.notice !== null) {
                    this.post({ kind: 'told', level: 'info', text: answer.notice });
                }
                this.changed();
                return this.tellChoices();
            }
            case 'offers': {
                const { id, word } = message;
                return this.post({ kind: 'offers', id, offers: await (word.startsWith('/') ? this.slash.skills(word) : offers(word)) });
            }
            case 'toolDetails':
                return conversation.toolDetails(message.toolCallId);
            case 'file':
                await window.showTextDocument(Uri.parse(message.uri));
                return;
            case 'diff':
                return this.files.compare(message.turnId, message.uri);
            case 'decide':
                return this.files.decide(message);
            case 'apply':
                return conversation.apply(message.turnId);
            case 'discard':
                return conversation.discard(message.turnId);
            case 'check':
                return this.findings.check(message.turnId, message.number, message.checked);
            case 'copy':
                return env.clipboard.writeText(message.text);
            case 'insert':
                return insert(message.text);
            case 'applyCode':
                return applyBlock(this.changes, this.pages, message.info, message.text);
            case 'terminal':
                return typeInTerminal(message.language, message.text);
            case 'highlight': {
                const tokens = await highlight(message.language, message.text);
                return tokens && this.post({ kind: 'highlighted', id: message.id, tokens });
            }
            case 'link':
                return follow(message.url);
            case 'fix':
                await FIXES[message.fix]();
        }
    }

    private async ready(): Promise<void> {
        this.unanswered = true;
        this.tellSummaries();
        this.shownContext = '';
        this.tellContext();
        this.cards.tell();
        await this.conversation.show();
        this.unanswered = false;
        this.post({ kind: 'status', text: statusText(this.turns.state) });
        await Promise.all([this.tellChoices(), this.conversation.tellSessions()]);
        if (this.wanted !== undefined) {
            this.post(this.wanted);
            this.wanted = undefined;
        }
    }

    private async ask({ prompt, mode, place, images: sent }: Extract<FromView, { kind: 'ask' }>): Promise<void> {
        const command = slashed(prompt);
        const images = sent ?? [];
        if (command !== null && images.length > 0) {
            // A command takes no images, so they wait for the next prompt.
            this.post({ kind: 'draft', text: '', images });
        }
        if (command === null) {
            const included = place === null ? [] : [fromView(place)];
            await this.withModel(prompt, () => this.conversation.ask(prompt, mode, included, images), images);
        } else if (this.conversation.busy) {
            this.post({ kind: 'told', level: 'warning', text: 'A turn is running. Stop it or wait for it first.' });
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

    /** Sends a prompt if there is a model, or else returns it to the text field. */
    private async withModel(prompt: string, send: () => Promise<void>, images: readonly SentImage[] = []): Promise<void> {
        try {
            if (this.conversation.busy || (await ensureModel(this.turns))) {
                return await send();
            }
        } catch (error) {
            this.post({ kind: 'failed', text: sentence(error), fixes: fixesFor(sentence(error), false) });
        }
        this.post({ kind: 'draft', text: prompt, images });
    }

    /** Shows the questions if the user can see the chat; returns false if not. */
    private showQuestions(isAgain: boolean): boolean {
        if (!this.view?.visible) {
            return false;
        }
        if (isAgain) {
            this.view.show(false);
            this.post({ kind: 'show', what: 'questions' });
        }
        return true;
    }

    private askElsewhere(): void {
        if (this.questions.open.length > 0) {
            this.questions.reopen();
        }
    }

    private async tellChoices(): Promise<void> {
        const { sessionId } = this.conversation;
        const answers = await Promise.all(CHOICES.map(key => this.turns.ask<unknown>(`thinklsp.${key}`, { sessionId })));
        const [effort, thinking, model] = answers;
        if (isChoice(effort) && isChoice(thinking) && isChoice(model)) {
            const { models } = model as Choice;
            const offline = isOffline(model as Choice);
            this.post({ kind: 'choices', effort, thinking, model, models: isModels(models) ? models : [], offline });
        }
    }

    private tellContext(): void {
        const place = implied();
        const message: ToView = { kind: 'context', place: place === undefined ? null : toView(place) };
        if (JSON.stringify(message) !== this.shownContext) {
            this.shownContext = JSON.stringify(message);
            this.post(message);
        }
    }

    private tellSummaries(): void {
        const display = workspace.getConfiguration('thinklsp').get('thinking.display');
        this.post({ kind: 'summaries', shown: display === 'summary' });
    }

    private tellFindings(turnId: string): void {
        const findings = this.findings.shown(turnId);
        if (findings.length > 0) {
            this.post({ kind: 'findings', turnId, findings });
        }
    }

    private post(message: ToView): void {
        void this.view?.webview.postMessage(message);
        if (message.kind === 'opened') {
            this.files.forget();
            for (const turnId of message.turns.flatMap(turn => turn.turnId ?? [])) {
                this.tellFindings(turnId);
                this.files.tell(turnId);
            }
        }
    }
}
