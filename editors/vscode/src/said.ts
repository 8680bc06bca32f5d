/** Messages for the user: one sentence, shown once, with a button that helps. */

import { commands, window } from 'vscode';

const ERROR = 1;
const WARNING = 2;
const REPEATED_MS = 10_000;
/** The editor cuts a longer message after its first line, unless the message has a button. */
const MAX_LINE = 45;
const NO_KEY = 'No model provider has a key.';
const WRONG_KEY = /\bAPI key\b|\bkey from\b/;
const SET_KEY = 'Set an API key';
const OPEN_FILE = 'Open config.toml';
const RETRY = 'Retry';
const CLOSE = 'Close';

const shown = new Map<string, number>();

export function sentence(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}

/** Runs something that the user asked for, and shows an error message if it fails. */
export async function told<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
        return await work();
    } catch (error) {
        void tell(sentence(error));
        return undefined;
    }
}

/** Whether a message of the server says that no provider has a key. */
export function isNoKey(message: string): boolean {
    return message.startsWith(NO_KEY);
}

/** Hides a message that the user sees elsewhere. */
export function mute(message: string): void {
    shown.forEach((at, old) => Date.now() - at < REPEATED_MS || shown.delete(old));
    shown.set(message, Date.now());
}

/** Shows a message of the server or of a failed command, unless it has just been shown. `type` is that of LSP. */
export async function tell(message: string, retry?: () => unknown, type = ERROR): Promise<void> {
    if (Date.now() - (shown.get(message) ?? 0) >= REPEATED_MS) {
        mute(message);
        await explain(message, retry, type);
    }
}

/** Shows a message, with a button that helps. `retry` runs the failed command again. */
export async function explain(message: string, retry?: () => unknown, type = ERROR): Promise<void> {
    switch (isNoKey(message) ? NO_KEY : await showHelp(message, retry, type)) {
        case NO_KEY:
            return again(commands.executeCommand('thinklsp.ui.firstRun'), retry);
        case SET_KEY:
            return again(commands.executeCommand('thinklsp.ui.setKey'), retry);
        case OPEN_FILE:
            return commands.executeCommand('thinklsp.ui.openConfig', message);
        case RETRY:
            retry?.();
            return;
        default:
    }
}

/** Shows a message as a whole. */
export const inform = (message: string, ...buttons: string[]) => window.showInformationMessage(message, ...whole(message, buttons));
export const warn = (message: string, ...buttons: string[]) => window.showWarningMessage(message, ...whole(message, buttons));
export const fail = (message: string, ...buttons: string[]) => window.showErrorMessage(message, ...whole(message, buttons));

function showHelp(message: string, retry: (() => unknown) | undefined, type: number): Thenable<string | undefined> {
    const show = type === ERROR ? fail : type === WARNING ? warn : inform;
    const help =
        message.includes('config.toml') ? OPEN_FILE
        : type !== ERROR ? undefined
        : WRONG_KEY.test(message) ? SET_KEY
        : retry && RETRY;
    return help === undefined ? show(message) : show(message, help);
}

async function again(helped: Thenable<unknown>, retry: (() => unknown) | undefined): Promise<void> {
    if ((await helped) === true) {
        retry?.();
    }
}

function whole(message: string, buttons: string[]): string[] {
    return buttons.length > 0 || message.length <= MAX_LINE ? buttons : [CLOSE];
}
