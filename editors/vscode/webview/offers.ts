/** The completion list of the prompt. The focus stays in the prompt, and the list closes when the prompt loses it. */

import type { Offer } from '../src/chat/messages';
import { element } from './dom';

export class Offers {
    readonly root = element('ul', { id: 'offers', class: 'offers', tabindex: 0, role: 'listbox', 'aria-label': 'Suggestions', hidden: true });
    private offers: readonly Offer[] = [];
    private at = 0;

    constructor(
        private readonly prompt: HTMLTextAreaElement,
        private readonly choose: (offer: Offer) => void,
    ) {
        prompt.setAttribute('aria-autocomplete', 'list');
        prompt.setAttribute('aria-controls', 'offers');
    }

    get open(): boolean {
        return !this.root.hidden;
    }

    show(offers: readonly Offer[]): void {
        this.offers = offers;
        this.root.replaceChildren(...offers.map((offer, at) => this.row(offer, at)));
        this.root.hidden = offers.length === 0;
        this.mark(0);
    }

    close(): void {
        this.show([]);
    }

    /** Handles a key; returns whether the list used it. */
    key(event: KeyboardEvent): boolean {
        if (!this.open) {
            return false;
        }
        const count = this.offers.length;
        switch (event.key) {
            case 'ArrowDown':
                this.mark((this.at + 1) % count);
                return true;
            case 'ArrowUp':
                this.mark((this.at + count - 1) % count);
                return true;
            case 'Enter':
            case 'Tab': {
                const offer = this.offers[this.at];
                if (event.shiftKey || offer === undefined) {
                    return false;
                }
                this.choose(offer);
                return true;
            }
            case 'Escape':
                this.close();
                return true;
            default:
                return false;
        }
    }

    private row(offer: Offer, at: number): HTMLElement {
        const row = element(
            'li',
            { id: `offer-${at}`, role: 'option', 'aria-selected': 'false' },
            element('span', { class: 'offer-label' }, offer.label),
            element('span', { class: 'offer-detail' }, offer.detail),
        );
        // Keep the focus in the prompt.
        row.addEventListener('mousedown', event => {
            event.preventDefault();
            this.choose(offer);
        });
        return row;
    }

    private mark(at: number): void {
        this.root.children[this.at]?.setAttribute('aria-selected', 'false');
        this.at = at;
        const row = this.root.children[at];
        if (row === undefined) {
            this.prompt.removeAttribute('aria-activedescendant');
            return;
        }
        row.setAttribute('aria-selected', 'true');
        row.scrollIntoView({ block: 'nearest' });
        this.prompt.setAttribute('aria-activedescendant', row.id);
    }
}
