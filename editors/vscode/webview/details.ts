/** Expandable lines for thinking and for tool calls. */

import { lasted } from '../src/chat/figures';
import type { Part, ToolPart } from '../src/chat/messages';
import { button, element, icon } from './dom';
import type { Acts } from './render';
import { Streamed } from './streamed';

export interface DetailActs extends Acts {
    toolDetails(toolCallId: string): void;
    showSummaries(): void;
}

type ThinkingPart = Extract<Part, { kind: 'thinking' }>;

const SEALED = 'The provider does not share this thinking.';
const NO_SUMMARY = 'This thinking has no readable summary.';
const STATES = { in_progress: 'running', completed: 'done', failed: 'failed' } as const;
const MARKS = { in_progress: 'spinner', completed: 'check', failed: 'cross' } as const;

export class ThinkingView {
    readonly root: HTMLElement;
    private readonly line = element('span', { class: 'line' });
    private readonly body = element('div', { class: 'detail-body' });
    private text: Streamed | undefined;

    /** `summaries`: whether the provider is asked for readable summaries. */
    constructor(
        private readonly acts: DetailActs,
        summaries: boolean,
    ) {
        const summary = element('summary', {}, icon('chevron'), this.line);
        this.root = element('details', { class: 'thinking' }, summary, this.body);
        this.body.append(...(summaries ? [NO_SUMMARY] : [`${SEALED} `, this.more()]));
    }

    show(part: ThinkingPart, running: boolean, status: string): void {
        const live = running && part.ended === null;
        this.root.classList.toggle('live', live);
        const took = part.began !== null && part.ended !== null ? part.ended - part.began : 0;
        this.line.textContent = live ? status || 'Thinking' : took < 1_000 ? 'Thought' : `Thought for ${lasted(took)}`;
        this.line.title = live ? status : '';
        if (part.text !== '') {
            if (this.text === undefined) {
                this.text = new Streamed(this.acts);
                this.body.replaceChildren(this.text.root);
            }
            this.text.show(part.text, !live);
        }
    }

    private more(): HTMLElement {
        return button({ text: 'Show Summaries', class: 'link' }, () => this.acts.showSummaries());
    }
}

export class ToolView {
    readonly root: HTMLElement;
    private readonly summary = element('summary');
    private readonly body = element('div', { class: 'detail-body' });
    private shown: ToolPart['status'] | undefined;
    private part: ToolPart | undefined;

    constructor(acts: DetailActs, id: string) {
        this.root = element('details', { class: 'tool' }, this.summary, this.body);
        this.root.addEventListener('toggle', () => {
            if ((this.root as HTMLDetailsElement).open) {
                if (this.part?.input || this.part?.output) {
                    this.details(this.part.input ?? '', this.part.output ?? '');
                } else {
                    acts.toolDetails(id);
                }
            }
        });
    }

    show(part: ToolPart, running: boolean): void {
        const isNew = part.input !== this.part?.input || part.output !== this.part?.output;
        this.part = part;
        if (isNew && (this.root as HTMLDetailsElement).open) {
            this.details(part.input ?? '', part.output ?? '');
        }
        const status = running || part.status !== 'in_progress' ? part.status : 'failed';
        if (status === this.shown) {
            return;
        }
        this.shown = status;
        this.root.classList.toggle('live', status === 'in_progress');
        this.root.classList.toggle('failed', status === 'failed');
        const state = element('span', { class: 'unseen' }, `, ${STATES[status]}`);
        const title = element('span', { class: 'line', title: part.title }, part.title, state);
        this.summary.replaceChildren(icon(MARKS[status]), title, icon('chevron'));
    }

    details(input: string, output: string): void {
        const block = (name: string, text: string): HTMLElement =>
            element(
                'div',
                {},
                element('div', { class: 'label' }, name),
                element('pre', { tabindex: 0, role: 'group', 'aria-label': name }, text),
            );
        const shown = [input && block('Arguments', input), output && block('Result', output)].filter(one => one !== '');
        this.body.replaceChildren(...(shown.length > 0 ? shown : ['The result of this call is not stored yet.']));
    }
}
