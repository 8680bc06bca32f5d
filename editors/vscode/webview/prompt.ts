/** A prompt in the transcript, which can be sent again, as it is or with other words. */

import type { Turn } from '../src/chat/messages';
import { button, element, icon } from './dom';
import { picture } from './pictures';

export interface PromptActs {
    /** Sends a prompt again. `turn` is the number of its turn. */
    retry(turn: number, before: string, prompt: string): void;
}

const NAMED = 60;

export class PromptView {
    readonly root: HTMLElement;
    private readonly prompt: string;
    private readonly text: HTMLElement;
    private readonly edit: HTMLButtonElement;
    private readonly actions: HTMLElement;

    constructor(
        private readonly number: number,
        { prompt, attachments, images }: Turn,
        private readonly acts: PromptActs,
    ) {
        this.prompt = prompt;
        const name = prompt.length > NAMED ? `${prompt.slice(0, NAMED)}…` : prompt;
        const chips = attachments.map(label => element('li', { class: 'chip' }, icon('file'), label));
        const pictures = (images ?? []).map((image, at) => element('li', {}, picture(image, at)));
        this.text = element('div', { class: 'prompt-text' }, prompt);
        this.edit = button({ label: `Edit prompt: ${name}`, icon: 'edit' }, () => this.open());
        const retry = button({ label: `Retry prompt: ${name}`, icon: 'retry' }, () => acts.retry(number, prompt, prompt));
        this.actions = element('div', { class: 'prompt-actions' }, this.edit, retry);
        this.root = element(
            'div',
            { class: 'prompt' },
            element('h2', { class: 'unseen' }, 'You'),
            this.text,
            pictures.length > 0 && element('ul', { class: 'pictures', 'aria-label': 'Sent images' }, ...pictures),
            chips.length > 0 && element('ul', { class: 'chips', 'aria-label': 'Attached' }, ...chips),
            this.actions,
        );
    }

    private open(): void {
        const field = element('textarea', { 'aria-label': 'Edit the prompt', rows: 1, spellcheck: 'false' });
        field.value = this.prompt;
        const send = button({ text: 'Send', class: 'primary' }, () => {
            if (field.value.trim() !== '') {
                close();
                this.acts.retry(this.number, this.prompt, field.value);
            }
        });
        const cancel = button({ text: 'Cancel', class: 'secondary' }, () => close());
        const buttons = element('div', { class: 'buttons' }, send, cancel);
        const editor = element('div', { class: 'prompt-editor' }, element('div', { class: 'box' }, field), buttons);
        const close = (): void => {
            editor.replaceWith(this.text);
            this.actions.hidden = false;
            this.root.classList.remove('edited');
            this.edit.focus();
        };
        field.addEventListener('keydown', event => {
            const isSend = event.key === 'Enter' && !event.shiftKey && !event.isComposing;
            if (isSend || event.key === 'Escape') {
                event.preventDefault();
                event.stopPropagation();
                isSend ? send.click() : close();
            }
        });
        this.text.replaceWith(editor);
        this.actions.hidden = true;
        this.root.classList.add('edited');
        field.focus();
        field.setSelectionRange(field.value.length, field.value.length);
    }
}
