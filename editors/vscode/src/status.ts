/** The item in the status bar: what would be used, what is going on, what is wrong. A click opens the menu. */

import { type Disposable, MarkdownString, StatusBarAlignment, ThemeColor, window } from 'vscode';
import type { Look } from './looks';
import type { Choice } from './protocol';
import type { Turns } from './turns';

export const MENU = 'thinklsp.ui.menu';

export class Status implements Disposable {
    private readonly item = window.createStatusBarItem('thinklsp', StatusBarAlignment.Right, 100);
    private readonly subscriptions: Disposable[];
    private using = '';
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
        ];
        this.draw(turns.state);
        this.item.show();
    }

    /** Asks what the next turn would use; the last one to ask is believed. */
    async look(): Promise<void> {
        const asked = ++this.looking;
        const [model, effort] = await Promise.all(
            ['thinklsp.model', 'thinklsp.effort'].map(command => this.turns.ask<Choice>(command).catch(() => undefined)),
        );
        if (asked !== this.looking) {
            return;
        }
        this.using = model?.effective ? [model.effective, effort?.value ?? 'auto'].join(' · ') : '';
        this.draw(this.turns.state);
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    private draw(look: Look): void {
        const [text, tip, color] = this.words(look);
        this.item.text = text;
        this.item.tooltip = new MarkdownString(`**thinklsp** — ${tip}`);
        this.item.backgroundColor = color === undefined ? undefined : new ThemeColor(`statusBarItem.${color}Background`);
        this.item.accessibilityInformation = { label: `thinklsp: ${tip}`, role: 'button' };
    }

    private words(look: Look): [text: string, tip: string, color?: 'warning' | 'error'] {
        switch (look.kind) {
            case 'idle':
                return this.using === ''
                    ? ['$(sparkle) thinklsp', 'No model yet: set an API key, or ask the doctor.']
                    : [`$(sparkle) ${this.using}`, 'model and effort of the next turn; click for the menu'];
            case 'thinking': {
                const figures = [look.phase, look.elapsed, look.tokens && `${look.tokens} tokens`].filter(Boolean);
                return [`$(loading~spin) ${figures.join(' · ')}`, `${look.phase}; click to stop`];
            }
            case 'waiting':
                return ['$(bell-dot) thinklsp waits for you', 'A question or an edit waits for your answer.', 'warning'];
            case 'error':
                return ['$(error) thinklsp', look.sentence, 'error'];
        }
    }
}
