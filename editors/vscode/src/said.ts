/** What went wrong, for the user: the server's own sentences are meant for them. */

import { window } from 'vscode';

export function sentence(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}

/** Runs what the user has asked for; a failure is told and ends here. */
export async function told<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
        return await work();
    } catch (error) {
        void window.showErrorMessage(sentence(error));
        return undefined;
    }
}
