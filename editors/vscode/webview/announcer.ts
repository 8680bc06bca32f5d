/** Announces changes to screen readers, at a limited rate. */

import { element } from './dom';

const PAUSE_MS = 3_000;

export class Announcer {
    readonly root = element('div', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
    private waiting = '';
    private quiet = false;

    /** Announces a text; a newer text replaces one that is still waiting. */
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
