/** The status bar item: shows the model of the next turn, progress or an error. A click opens the menu. */

import { type Disposable, MarkdownString, StatusBarAlignment, ThemeColor, commands, window, workspace } from 'vscode';
import { FIRST_RUN, isOffline } from './first-run';
import type { Look } from './looks';
import type { Choice } from './protocol';
import { sentence } from './said';
import type { Turns } from './turns';

export const MENU = 'thinklsp.ui.menu';

export class Status implements Disposable {
    private readonly item = window.createStatusBarItem('thinklsp', StatusBarAlignment.Right, 100);
    private readonly subscriptions: Disposable[];
    /** The model and effort of the next turn, empty without a model. */
    private using: string | undefined;
    private isOffline = isOffline();
    /** Why the server cannot name the model. */
    private trouble: string | undefined;
    private looking = 0;

    constructor(private readonly turns: Turns) {
        this.item.name = 'thinklsp';
        this.item.command = MENU;
        this.subscriptions = [
            this.item,
            turns.onDidChange(look => {
                this.draw(look);
                if (look.kind === 'idle') {
                    void this.look();
                }
            }),
            turns.onDidConfigure(() => void this.look()),
            workspace.onDidSaveTextDocument(({ uri }) => uri.path.endsWith('/config.toml') && void this.look()),
        ];
        this.draw(turns.state);
        this.item.show();
    }

    /** The error message that the item shows. */
    get wrong(): string | undefined {
        const look = this.turns.state;
        return look.kind === 'error' ? look.sentence : this.trouble;
    }

    /** Requests the choices for the next turn and shows the response to the latest request. */
    async look(): Promise<void> {
        const asked = ++this.looking;
        try {
            const [model, effort] = await Promise.all(
                ['thinklsp.model', 'thinklsp.effort'].map(command => this.turns.ask<Choice>(command)),
            );
            const using = model?.effective ? `${model.effective} · ${effort?.value ?? 'auto'}` : '';
            this.show(asked, isOffline(model), using, undefined);
        } catch (error) {
            this.show(asked, isOffline(), undefined, sentence(error));
        }
    }

    private show(asked: number, offline: boolean, using: string | undefined, trouble: string | undefined): void {
        if (asked === this.looking) {
            this.isOffline = offline;
            this.using = using;
            this.trouble = trouble;
            void commands.executeCommand('setContext', 'thinklsp.hasModel', Boolean(using));
            this.draw(this.turns.state);
        }
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    private draw(look: Look): void {
        const [text, tip, color] = this.words(look);
        this.item.text = text;
        this.item.command = look.kind === 'idle' && this.using === '' && !this.isOffline ? FIRST_RUN : MENU;
        this.item.tooltip = new MarkdownString(`**thinklsp** — ${tip}`);
        this.item.backgroundColor = color === undefined ? undefined : new ThemeColor(`statusBarItem.${color}Background`);
        this.item.accessibilityInformation = { label: `thinklsp: ${tip}`, role: 'button' };
    }

    private words(look: Look): [text: string, tip: string, color?: 'warning' | 'error'] {
        switch (look.kind) {
            case 'idle':
                if (this.trouble !== undefined) {
                    return ['$(error) thinklsp', this.trouble, 'error'];
                }
                if (this.isOffline) {
                    return ['$(debug-disconnect) thinklsp offline', 'scripted answers of the simulator (click for the menu)'];
                }
                if (this.using === undefined) {
                    return ['$(sparkle) thinklsp', 'The server is starting.'];
                }
                return this.using === ''
                    ? ['$(sparkle) thinklsp', 'No model yet. Click to set an API key, use a local server or try offline.']
                    : [`$(sparkle) ${this.using}`, 'model and effort for the next turn (click for the menu)'];
            case 'thinking': {
                const figures = [look.phase, look.elapsed, look.tokens && `${look.tokens} tokens`].filter(Boolean);
                return [`$(loading~spin) ${figures.join(' · ')}`, `${look.phase} (click for the menu, to stop)`];
            }
            case 'waiting':
                return ['$(bell-dot) thinklsp is waiting for you', 'A question or an edit is waiting for your answer.', 'warning'];
            case 'error':
                return ['$(error) thinklsp', look.sentence, 'error'];
        }
    }
}
