/** The questions that wait for the user's answer. A question outlives its message, which the editor hides after a while. */

import { type CancellationToken, type Event, EventEmitter, window } from 'vscode';
import type { MessageActionItem, ShowMessageRequestParams } from 'vscode-languageclient/node';

const WARNING = 2;

/** A question to the user. `options` are the possible answers. */
export interface Question {
    readonly text: string;
    readonly options: readonly string[];
    answer(option: string): void;
    /** Ends the question without an answer. */
    drop(): void;
}

export class Questions {
    private readonly waiting = new Map<Question, (isAgain: boolean) => void>();
    private readonly changed = new EventEmitter<void>();

    /** Shows the questions in the chat, and moves the focus there if the user has asked for them again; returns false if the user
     * cannot see the chat. */
    showInChat: (isAgain: boolean) => boolean = () => false;

    /** Fires when a question is asked, answered or cancelled. */
    readonly onDidChange: Event<void> = this.changed.event;

    /** The open questions, oldest first. */
    get open(): readonly Question[] {
        return [...this.waiting.keys()];
    }

    /** Resolves to the chosen option, or to undefined if the question is cancelled. A closed message is not an answer. */
    ask(
        text: string,
        options: readonly string[],
        token: CancellationToken,
        show = window.showInformationMessage,
    ): Promise<string | undefined> {
        return new Promise(resolve => {
            const end = (option: string | undefined) => {
                if (this.waiting.delete(question)) {
                    cancelled.dispose();
                    resolve(option);
                    this.changed.fire();
                }
            };
            const question: Question = { text, options, answer: end, drop: () => end(undefined) };
            const cancelled = token.onCancellationRequested(() => end(undefined));
            const open = (isAgain: boolean) => {
                // The editor cannot take a message back after an answer in the chat, so a question is shown in one place.
                if (this.showInChat(isAgain)) {
                    return;
                }
                show(text, ...options).then(
                    chosen => {
                        if (chosen !== undefined) {
                            end(chosen);
                        }
                    },
                    () => undefined,
                );
            };
            this.waiting.set(question, open);
            this.changed.fire();
            open(false);
        });
    }

    /** Asks a question of the server. */
    async askForServer(params: ShowMessageRequestParams, token: CancellationToken): Promise<MessageActionItem | null> {
        const { type, message, actions } = params;
        const show = type <= WARNING ? window.showWarningMessage : window.showInformationMessage;
        const title = await this.ask(message, (actions ?? []).map(action => action.title), token, show);
        return title === undefined ? null : { title };
    }

    /** Shows the open questions again; returns false if there are none. */
    reopen(): boolean {
        this.waiting.forEach(open => open(true));
        return this.waiting.size > 0;
    }

    /** Ends the open questions without an answer, because the server is gone. */
    drop(): void {
        this.open.forEach(question => question.drop());
    }

    dispose(): void {
        this.changed.dispose();
    }
}
