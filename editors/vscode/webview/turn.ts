/** The view of one turn: the prompt and its results. Only changed parts are rendered again. */

import { used } from '../src/chat/figures';
import type { Decided, Part, ShownFinding, Turn } from '../src/chat/messages';
import { ThinkingView, ToolView, type DetailActs } from './details';
import { element, icon } from './dom';
import { type EditActs, editsShown } from './edits';
import { type FindingActs, FindingsView, removeWritten } from './findings';
import { type PromptActs, PromptView } from './prompt';
import { Streamed } from './streamed';

export type TurnActs = DetailActs & EditActs & FindingActs & PromptActs;

const STOPPED: Record<string, string> = {
    cancelled: 'Stopped',
    refusal: 'The service declined to answer',
    max_tokens: 'Truncated at the output limit',
    max_steps: 'Stopped at the step limit',
    budget: 'Stopped at the budget',
    context_window: 'The conversation outgrew the model’s context window',
};
const ENTRIES = { completed: 'check', in_progress: 'spinner' } as const;

interface PartView {
    readonly root: HTMLElement;
    readonly key: string;
    show(part: Part, turn: Turn, status: string): void;
}

export class TurnView {
    readonly root: HTMLElement;
    private readonly body = element('div', { class: 'parts' });
    private readonly plan = element('div');
    private readonly findings: FindingsView;
    private readonly edits = element('div');
    private readonly foot = element('div', { class: 'foot' });
    private readonly tools = new Map<string, ToolView>();
    private views: PartView[] = [];
    private shown: Turn | undefined;
    private decided: readonly Decided[] = [];

    constructor(
        number: number,
        turn: Turn,
        private readonly acts: TurnActs,
        private readonly summaries: boolean,
    ) {
        this.findings = new FindingsView(acts);
        this.root = element(
            'article',
            { class: 'turn' },
            new PromptView(number, turn, acts).root,
            element('h2', { class: 'unseen' }, 'thinklsp'),
            this.plan,
            this.body,
            this.findings.root,
            this.edits,
            this.foot,
        );
    }

    show(turn: Turn, status: string): void {
        const before = this.shown;
        if (turn === before && !turn.running) {
            return;
        }
        this.shown = turn;
        this.showParts(turn, status);
        if (turn.plan !== before?.plan || turn.running !== before.running) {
            this.plan.replaceChildren(...planned(turn));
        }
        if (turn.edits !== before?.edits) {
            this.showEdits(turn);
        }
        const last = turn.parts.at(-1);
        const told = turn.running ? (last?.kind === 'thinking' ? '' : status) : footed(turn);
        if (this.foot.textContent !== told) {
            this.foot.textContent = told;
        }
        this.foot.classList.toggle('live', turn.running);
    }

    showDecided(decided: readonly Decided[]): void {
        this.decided = decided;
        if (this.shown !== undefined) {
            this.showEdits(this.shown);
        }
    }

    showFindings(turnId: string, findings: readonly ShownFinding[]): void {
        this.findings.show(turnId, findings);
        removeWritten(this.body);
    }

    details(toolCallId: string, input: string, output: string): void {
        this.tools.get(toolCallId)?.details(input, output);
    }

    private showEdits({ edits, turnId }: Turn): void {
        // The button disappears, so its focus moves to the next one.
        const at = [...this.edits.querySelectorAll('button')].indexOf(document.activeElement as HTMLButtonElement);
        this.edits.replaceChildren(...(edits && turnId ? [editsShown(edits, turnId, this.decided, this.acts)] : []));
        const buttons = this.edits.querySelectorAll('button');
        if (at >= 0) {
            buttons[Math.min(at, buttons.length - 1)]?.focus();
        }
    }

    /** Updates the parts. Parts are added and removed only at the end; other parts change in place. */
    private showParts(turn: Turn, status: string): void {
        const kept = turn.parts.findIndex((part, at) => this.views[at]?.key !== keyed(part));
        for (const view of this.views.splice(kept < 0 ? turn.parts.length : kept)) {
            view.root.remove();
        }
        turn.parts.forEach((part, at) => {
            let view = this.views[at];
            if (view === undefined) {
                view = this.made(part);
                this.views.push(view);
                this.body.append(view.root);
            }
            view.show(part, turn, status);
        });
    }

    private made(part: Part): PartView {
        switch (part.kind) {
            case 'text': {
                const view = new Streamed(this.acts);
                const show = (now: Part, turn: Turn): void => {
                    if (now.kind === 'text') {
                        view.show(now.text, !turn.running || turn.parts.at(-1) !== now);
                    }
                };
                return { key: keyed(part), root: view.root, show };
            }
            case 'thinking': {
                const view = new ThinkingView(this.acts, this.summaries);
                const show = (now: Part, turn: Turn, status: string): void => {
                    if (now.kind === 'thinking') {
                        view.show(now, turn.running, status);
                    }
                };
                return { key: keyed(part), root: view.root, show };
            }
            case 'tool': {
                const view = new ToolView(this.acts, part.id);
                this.tools.set(part.id, view);
                const show = (now: Part, turn: Turn): void => {
                    if (now.kind === 'tool') {
                        view.show(now, turn.running);
                    }
                };
                return { key: keyed(part), root: view.root, show };
            }
            case 'notice': {
                const root = element('div', { class: `notice ${part.level}` }, icon(part.level), element('span', {}, part.text));
                return { key: keyed(part), root, show: () => undefined };
            }
        }
    }
}

function keyed(part: Part): string {
    return part.kind === 'tool' ? `tool ${part.id}` : part.kind === 'notice' ? `notice ${part.text}` : part.kind;
}

function planned(turn: Turn): HTMLElement[] {
    if (turn.plan.length === 0) {
        return [];
    }
    const done = turn.plan.filter(entry => entry.status === 'completed').length;
    const rows = turn.plan.map(entry => {
        const known = ENTRIES[entry.status as keyof typeof ENTRIES] ?? 'circle';
        // A tool that has not finished stops spinning when the turn ends.
        const mark = known === 'spinner' && !turn.running ? 'circle' : known;
        const said = element('span', { class: 'unseen' }, `, ${entry.status.replaceAll('_', ' ')}`);
        return element('li', { class: entry.status }, icon(mark), element('span', {}, entry.text, said));
    });
    const head = element('summary', {}, icon('chevron'), element('span', { class: 'line' }, `Plan, ${done} of ${rows.length} done`));
    return [element('details', { class: 'plan', open: true }, head, element('ul', {}, ...rows))];
}

function footed(turn: Turn): string {
    const stopped = turn.stopReason === null ? '' : (STOPPED[turn.stopReason] ?? '');
    return [stopped, turn.usage === null ? '' : used(turn.usage)].filter(text => text !== '').join(' · ');
}
