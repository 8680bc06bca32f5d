/** The buttons of a session in the list: fork, rename, export and delete. */

import { window, workspace } from 'vscode';
import type { Turns } from '../turns';
import type { Conversation } from './conversation';

const DELETE = 'Delete';

export class SessionActions {
    constructor(
        private readonly turns: Turns,
        private readonly conversation: Conversation,
    ) {}

    async fork(sessionId: string): Promise<void> {
        const fork = await this.turns.ask<{ sessionId: string }>('thinklsp.sessions', { op: 'fork', sessionId });
        await this.conversation.open(fork.sessionId);
        await this.conversation.tellSessions();
    }

    async rename(sessionId: string, value: string): Promise<void> {
        const title = await window.showInputBox({ title: 'thinklsp: rename the session', value, ignoreFocusOut: true });
        if (title?.trim()) {
            await this.turns.ask('thinklsp.sessions', { op: 'rename', sessionId, title });
            await this.conversation.tellSessions();
        }
    }

    /** Opens the session as a new Markdown document, which the user can save. */
    async export(sessionId: string): Promise<void> {
        const { text } = await this.turns.ask<{ text: string }>('thinklsp.sessions', { op: 'export', sessionId });
        await window.showTextDocument(await workspace.openTextDocument({ language: 'markdown', content: text }));
    }

    /** Deletes a session after the user has confirmed it; returns whether it was deleted. */
    async delete(sessionId: string): Promise<boolean> {
        const detail = 'Its messages are deleted too. This cannot be undone.';
        if ((await window.showWarningMessage('Delete this session?', { modal: true, detail }, DELETE)) !== DELETE) {
            return false;
        }
        await this.turns.ask('thinklsp.sessions', { op: 'delete', sessionId });
        if (sessionId === this.conversation.sessionId) {
            await this.conversation.begin();
        }
        return true;
    }
}
