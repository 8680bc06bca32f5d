/** Where the prompt is written, with what goes along and how it is asked. */

import type { ChoiceName, Mode, Offer } from '../src/chat/messages';
import { SLASH_COMMANDS, typed } from '../src/chat/words';
import { button, element, icon } from './dom';
import { Offers } from './offers';
import { Pickers } from './pickers';

export interface ComposerActs {
    ask(prompt: string, mode: Mode, selection: boolean): void;
    stop(): void;
    choose(key: ChoiceName, value: string): void;
    offers(id: number, word: string): void;
    /** The draft or the mode is another. */
    changed(): void;
    lastPrompt(): string;
}

export class Composer {
    readonly root: HTMLElement;
    readonly pickers: Pickers;
    readonly usage = element('span', { class: 'session-usage' });
    private readonly prompt = element('textarea', {
        'aria-label': 'Prompt',
        placeholder: 'Ask, @ for context, / for commands',
        rows: 1,
        spellcheck: 'false',
    });
    private readonly chips = element('ul', { class: 'chips', 'aria-label': 'Goes along' });
    private readonly sendButton: HTMLButtonElement;
    private readonly stopButton: HTMLButtonElement;
    private readonly list: Offers;
    private selection: string | null = null;
    private declined: string | null = null;
    private asked = 0;
    private running = false;

    constructor(private readonly acts: ComposerActs) {
        this.pickers = new Pickers(acts.choose, acts.changed);
        this.list = new Offers(this.prompt, offer => this.take(offer));
        this.sendButton = button({ label: 'Send (Enter)', icon: 'send', class: 'send' }, () => this.send());
        this.stopButton = button({ label: 'Stop (Escape)', icon: 'stop', class: 'stop' }, () => acts.stop());
        this.stopButton.hidden = true;
        const { mode, model, effort, thinking } = this.pickers;
        const bar = element('div', { class: 'bar' }, mode, model, this.sendButton, this.stopButton);
        this.root = element(
            'footer',
            { class: 'composer' },
            element('div', { class: 'box' }, this.chips, this.prompt, this.list.root, bar),
            element('div', { class: 'under' }, effort, thinking, this.usage),
        );
        this.prompt.addEventListener('input', () => this.edited());
        this.prompt.addEventListener('keydown', event => this.key(event));
        this.prompt.addEventListener('blur', () => this.list.close());
    }

    get draft(): string {
        return this.prompt.value;
    }

    set draft(text: string) {
        this.prompt.value = text;
        this.sendButton.disabled = text.trim() === '';
    }

    focus(): void {
        this.prompt.focus();
    }

    /** Whether there was a list to close. */
    escape(): boolean {
        const open = this.list.open;
        this.list.close();
        return open;
    }

    showRunning(running: boolean): void {
        if (running === this.running) {
            return;
        }
        this.running = running;
        // The focus must not be lost with the button that had it.
        const focused = [this.sendButton, this.stopButton].some(one => one === document.activeElement);
        this.sendButton.hidden = running;
        this.stopButton.hidden = !running;
        if (focused) {
            this.focus();
        }
    }

    showSelection(label: string | null): void {
        this.selection = label;
        if (label !== this.declined) {
            this.declined = null;
        }
        const shown = label !== null && this.declined === null;
        this.chips.replaceChildren(...(shown ? [this.chip(label)] : []));
        this.chips.hidden = !shown;
    }

    showOffers(id: number, offers: readonly Offer[]): void {
        const found = typed(this.draft, this.prompt.selectionStart);
        if (id === this.asked && found !== null && document.activeElement === this.prompt) {
            this.offer(offers, found.word);
        }
    }

    private chip(label: string): HTMLElement {
        const remove = button({ label: `Leave out ${label}`, icon: 'cross' }, () => {
            this.declined = label;
            this.showSelection(label);
            this.focus();
        });
        return element('li', { class: 'chip' }, icon('file'), element('span', {}, label), remove);
    }

    private edited(): void {
        this.sendButton.disabled = this.draft.trim() === '';
        this.acts.changed();
        this.asked += 1;
        const found = typed(this.draft, this.prompt.selectionStart);
        if (found === null) {
            this.list.close();
        } else if (found.word.startsWith('/')) {
            const matching = SLASH_COMMANDS.filter(({ name }) => `/${name}`.startsWith(found.word.toLowerCase()));
            const offers = matching.map(({ name, usage, about }) => ({ label: usage, insert: `/${name} `, detail: about }));
            this.offer(offers, found.word);
        } else {
            this.acts.offers(this.asked, found.word);
        }
    }

    /** What stands there whole already is none: Enter then sends. */
    private offer(offers: readonly Offer[], word: string): void {
        this.list.show(offers.filter(({ insert }) => insert.trimEnd() !== word));
    }

    private take(offer: Offer): void {
        const end = this.prompt.selectionStart;
        const found = typed(this.draft, end);
        this.list.close();
        if (found !== null) {
            this.prompt.setRangeText(offer.insert, found.start, end, 'end');
            this.acts.changed();
        }
    }

    private key(event: KeyboardEvent): void {
        if (event.isComposing) {
            return;
        }
        const plain = !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
        if (this.list.key(event)) {
            // What is still on its way is not wanted any more.
            this.asked += 1;
            event.preventDefault();
            event.stopPropagation();
        } else if (event.key === 'Enter' && plain) {
            event.preventDefault();
            this.send();
        } else if (event.key === 'ArrowUp' && plain && this.draft === '') {
            event.preventDefault();
            this.draft = this.acts.lastPrompt();
            this.acts.changed();
        }
    }

    private send(): void {
        const prompt = this.draft;
        if (prompt.trim() === '' || this.running) {
            return;
        }
        this.list.close();
        this.acts.ask(prompt, this.pickers.chosenMode, this.selection !== null && this.declined === null);
        this.draft = '';
        this.acts.changed();
        this.focus();
    }
}
