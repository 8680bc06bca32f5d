/** The questions that wait for the user's answer, between the transcript and the text field. */

import type { Question } from '../src/chat/messages';
import { button, element, icon } from './dom';

/** A longer text can be scrolled, so it must be reachable by keyboard. */
const LONG = 300;

export class QuestionsView {
    readonly root = element('div', { class: 'questions', hidden: true });
    private ids: string = '';

    constructor(private readonly answer: (id: number, option: string) => void) {}

    /** Shows the questions; returns whether the focused one has gone. */
    show(questions: readonly Question[]): boolean {
        const ids = questions.map(({ id }) => id).join(' ');
        if (ids === this.ids) {
            return false;
        }
        this.ids = ids;
        const hadFocus = this.root.contains(document.activeElement);
        this.root.replaceChildren(...questions.map(question => this.card(question)));
        this.root.hidden = questions.length === 0;
        return hadFocus;
    }

    focus(): void {
        this.root.querySelector('button')?.focus();
    }

    private card({ id, text, options }: Question): HTMLElement {
        const buttons = options.map((option, at) =>
            button({ text: option, class: at === 0 ? 'primary' : 'secondary' }, () => this.answer(id, option)),
        );
        const said = element('div', { class: 'question-text', tabindex: text.length > LONG ? 0 : undefined }, text);
        return element(
            'section',
            { class: 'question', 'aria-label': 'Question' },
            icon('question'),
            element('div', { class: 'question-body' }, said, element('div', { class: 'buttons' }, ...buttons)),
        );
    }
}
