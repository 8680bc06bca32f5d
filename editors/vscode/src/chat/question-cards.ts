/** The questions that wait for the user, as cards in the chat. */

import type { Question, Questions } from '../questions';
import type { ToView } from './messages';

export class QuestionCards {
    private readonly ids = new Map<Question, number>();
    private count = 0;

    constructor(
        private readonly questions: Questions,
        private readonly post: (message: ToView) => void,
    ) {}

    tell(): void {
        const { open } = this.questions;
        [...this.ids.keys()].filter(question => !open.includes(question)).forEach(question => this.ids.delete(question));
        const questions = open.map(question => {
            const id = this.ids.get(question) ?? (this.count += 1);
            this.ids.set(question, id);
            return { id, text: question.text, options: question.options };
        });
        this.post({ kind: 'questions', questions });
    }

    /** Answers a question, unless it has been answered or cancelled in the meantime. */
    answer(id: number, option: string): void {
        const question = this.questions.open.find(one => this.ids.get(one) === id);
        if (question?.options.includes(option)) {
            question.answer(option);
        }
    }
}
