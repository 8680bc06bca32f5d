/** The prompt's text field, with its context and the choices for the turn. */

import type { SentImage } from '../src/chat/images';
import type { ChoiceName, Mode, Offer, QueuedPrompt, SentPlace, ToView } from '../src/chat/messages';
import { SLASH_COMMANDS, typed } from '../src/chat/words';
import { button, element, icon } from './dom';
import { Offers } from './offers';
import { Pickers } from './pickers';
import { Pictures } from './pictures';

const SKILL = '/skill';

/** Returns the slash commands that start with a word. The extension offers the skills by their names. */
function commandOffers(word: string): Offer[] {
    const matching = SLASH_COMMANDS.filter(({ name }) => `/${name}`.startsWith(word.toLowerCase()) && `/${name}` !== SKILL);
    return matching.map(({ name, usage, about }) => ({ label: usage, insert: `/${name} `, detail: about }));
}

export interface ComposerActs {
    ask(prompt: string, mode: Mode, place: SentPlace | null, images: readonly SentImage[]): void;
    warn(text: string): void;
    stop(): void;
    unqueue(id: number): void;
    choose(key: ChoiceName, value: string): void;
    setKey(): void;
    offers(id: number, word: string): void;
    /** Called when the draft, the mode or the included context changed. */
    changed(): void;
    lastPrompt(): string;
}

type Context = Extract<ToView, { kind: 'context' }>['place'];

export class Composer {
    readonly root: HTMLElement;
    readonly pickers: Pickers;
    readonly pictures: Pictures;
    readonly usage = element('span', { class: 'session-usage' });
    private readonly prompt = element('textarea', {
        'aria-label': 'Prompt',
        placeholder: 'Ask, @ for context, / for commands',
        rows: 1,
        spellcheck: 'false',
    });
    private readonly chips = element('ul', { class: 'chips', 'aria-label': 'Included context' });
    private readonly queue = element('ul', { class: 'queue', 'aria-label': 'Queued prompts', hidden: true });
    private readonly sendButton: HTMLButtonElement;
    private readonly stopButton: HTMLButtonElement;
    private readonly list: Offers;
    private context: Context = null;
    private isLeftOut = false;
    private asked = 0;
    private running = false;

    constructor(private readonly acts: ComposerActs) {
        this.pickers = new Pickers(acts.choose, acts.setKey, acts.changed);
        this.pictures = new Pictures({ changed: () => this.enable(), warn: acts.warn, focus: () => this.focus() });
        this.list = new Offers(this.prompt, offer => this.take(offer));
        this.sendButton = button({ label: 'Send (Enter)', icon: 'send', class: 'send' }, () => this.send());
        this.stopButton = button({ label: 'Stop (Escape)', icon: 'stop', class: 'stop' }, () => acts.stop());
        this.stopButton.hidden = true;
        const { bar, under, lists } = this.pickers;
        const box = element(
            'div',
            { class: 'box' },
            this.chips,
            this.pictures.root,
            this.prompt,
            this.list.root,
            ...lists,
            element('div', { class: 'bar' }, ...bar, this.sendButton, this.stopButton),
        );
        this.root = element(
            'footer',
            { class: 'composer' },
            this.queue,
            box,
            element('div', { class: 'under' }, ...under, this.usage),
        );
        this.prompt.addEventListener('input', () => this.edited());
        this.prompt.addEventListener('keydown', event => this.key(event));
        this.prompt.addEventListener('blur', () => this.list.close());
        this.prompt.addEventListener('paste', event => this.attach(event, event.clipboardData));
        this.takeDrops(box);
    }

    get draft(): string {
        return this.prompt.value;
    }

    set draft(text: string) {
        this.prompt.value = text;
        this.enable();
    }

    focus(): void {
        this.prompt.focus();
    }

    /** Closes the completion list; returns whether it was open. */
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
        // The button disappears, so its focus moves to the prompt.
        const focused = document.activeElement === this.stopButton;
        const label = running ? 'Queue (Enter)' : 'Send (Enter)';
        this.sendButton.title = label;
        this.sendButton.setAttribute('aria-label', label);
        this.stopButton.hidden = !running;
        if (focused) {
            this.focus();
        }
    }

    /** Shows the prompts that wait for the running turn. */
    showQueue(prompts: readonly QueuedPrompt[]): void {
        const focused = this.queue.contains(document.activeElement);
        const rows = prompts.map(({ id, prompt }) => {
            const remove = button({ label: `Remove queued prompt: ${prompt}`, icon: 'cross' }, () => this.acts.unqueue(id));
            return element('li', {}, element('span', { class: 'muted' }, 'Queued'), element('span', { class: 'line' }, prompt), remove);
        });
        this.queue.replaceChildren(...rows);
        this.queue.hidden = rows.length === 0;
        if (focused) {
            this.focus();
        }
    }

    /** Whether the user has left the active file or the selection out. */
    get leavesOut(): boolean {
        return this.isLeftOut;
    }

    set leavesOut(isLeftOut: boolean) {
        this.isLeftOut = isLeftOut;
        this.showContext(this.context);
    }

    /** Shows the place that the next prompt includes. */
    showContext(context: Context): void {
        const focused = this.chips.contains(document.activeElement);
        this.context = context;
        this.chips.replaceChildren(...(context === null ? [] : [this.chip(context.label)]));
        this.chips.hidden = context === null;
        if (focused) {
            this.focus();
        }
    }

    showOffers(id: number, offers: readonly Offer[]): void {
        const found = typed(this.draft, this.prompt.selectionStart);
        if (id === this.asked && found !== null && document.activeElement === this.prompt) {
            this.offer([...commandOffers(found.word), ...offers], found.word);
        }
    }

    private chip(label: string): HTMLElement {
        const turn = (isLeftOut: boolean) => () => {
            this.leavesOut = isLeftOut;
            this.acts.changed();
        };
        if (this.isLeftOut) {
            const add = button({ text: label, icon: 'add', label: `Include ${label}`, class: 'add' }, turn(false));
            return element('li', { class: 'chip left-out' }, add);
        }
        const remove = button({ label: `Leave out ${label}`, icon: 'cross' }, turn(true));
        return element('li', { class: 'chip' }, icon('file'), element('span', {}, label), remove);
    }

    private get blank(): boolean {
        return this.draft.trim() === '' && this.pictures.empty;
    }

    private enable(): void {
        this.sendButton.disabled = this.blank;
    }

    /** Attaches the files of a paste or a drop. A paste of text stays a paste. */
    private attach(event: Event, data: DataTransfer | null): void {
        const files = [...(data?.files ?? [])];
        if (files.length > 0) {
            event.preventDefault();
            void this.pictures.add(files).then(() => this.focus());
        }
    }

    private takeDrops(box: HTMLElement): void {
        const mark = (event: DragEvent, over: boolean): void => {
            if (event.dataTransfer?.types.includes('Files')) {
                event.preventDefault();
                box.classList.toggle('dropping', over);
            }
        };
        box.addEventListener('dragover', event => mark(event, true));
        box.addEventListener('dragleave', event => mark(event, false));
        box.addEventListener('drop', event => {
            mark(event, false);
            this.attach(event, event.dataTransfer);
        });
    }

    private edited(): void {
        this.enable();
        this.acts.changed();
        this.asked += 1;
        const found = typed(this.draft, this.prompt.selectionStart);
        if (found === null) {
            this.list.close();
        } else if (found.word.startsWith('/')) {
            this.offer(commandOffers(found.word), found.word);
            if (`${SKILL}:`.startsWith(found.word.toLowerCase()) || found.word.toLowerCase().startsWith(`${SKILL}:`)) {
                this.acts.offers(this.asked, found.word);
            }
        } else {
            this.acts.offers(this.asked, found.word);
        }
    }

    /** Offers completions, except the word that is already complete, so that Enter sends the prompt. */
    private offer(offers: readonly Offer[], word: string): void {
        this.list.show(offers.filter(({ insert }) => insert.trimEnd() !== word));
    }

    private take(offer: Offer): void {
        const end = this.prompt.selectionStart;
        const found = typed(this.draft, end);
        this.list.close();
        if (found !== null) {
            // The space after the reference may already be there.
            const hasSpace = /^\s/.test(this.draft.slice(end));
            this.prompt.setRangeText(hasSpace ? offer.insert.trimEnd() : offer.insert, found.start, end, 'end');
            if (hasSpace) {
                this.prompt.setSelectionRange(this.prompt.selectionEnd + 1, this.prompt.selectionEnd + 1);
            }
            this.acts.changed();
        }
    }

    private key(event: KeyboardEvent): void {
        if (event.isComposing) {
            return;
        }
        const plain = !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
        if (this.list.key(event)) {
            // Ignore completions that are still on their way.
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
        if (this.blank) {
            return;
        }
        this.list.close();
        const place = this.isLeftOut ? null : (this.context?.place ?? null);
        this.acts.ask(prompt, this.pickers.chosenMode, place, this.pictures.take());
        this.draft = '';
        this.acts.changed();
        this.focus();
    }
}
