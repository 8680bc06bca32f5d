/** What a screen reader says: politely, and not more often than one can listen. */

import { element } from './dom';

const PAUSE_MS = 3_000;

export class Announcer {
    readonly root = element('div', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
    private waiting = '';
    private quiet = false;

    /** What has not been said yet is left out for what is newer. */
    say(text: string): void {
        this.waiting = text;
        if (!this.quiet) {
            this.speak();
        }
    }

    private speak(): void {
        if (this.waiting === '') {
            this.quiet = false;
            return;
        }
        this.root.textContent = this.waiting;
        this.waiting = '';
        this.quiet = true;
        window.setTimeout(() => this.speak(), PAUSE_MS);
    }
}
