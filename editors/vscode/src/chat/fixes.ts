/** The buttons that help after an error. Pure functions. */

import type { ToView } from './messages';

/** Returns the buttons for an error message, the best one first. */
export function fixesFor(text: string, canRetry: boolean): Extract<ToView, { kind: 'failed' }>['fixes'] {
    return [
        ...(text.includes('config.toml') ? [{ label: 'Open config.toml', fix: 'openConfig' } as const] : []),
        ...(/\bkey\b/i.test(text) ? [{ label: 'Set API Key…', fix: 'setKey' } as const] : []),
        ...(canRetry ? [{ label: 'Retry', fix: 'retry' } as const] : []),
    ];
}
