/** The chat in the side bar. */

import { type Disposable, type ExtensionContext, type WebviewView, type WebviewViewProvider, window } from 'vscode';
import type { Turns } from '../turns';

export const CHAT_VIEW = 'thinklsp.chatView';

export class ChatView implements WebviewViewProvider, Disposable {
    private readonly registered: Disposable;

    constructor(
        private readonly context: ExtensionContext,
        private readonly turns: Turns,
    ) {
        this.registered = window.registerWebviewViewProvider(CHAT_VIEW, this);
    }

    resolveWebviewView(view: WebviewView): void {
        view.webview.html = `<p>${this.context.extension.id}: ${this.turns.state.kind}</p>`;
    }

    dispose(): void {
        this.registered.dispose();
    }
}
