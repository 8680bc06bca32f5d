/** The conversation: turns, and what was said between them. Stays at its end unless the reader has scrolled away. */

import type { Level, Turn } from '../src/chat/messages';
import { element, icon } from './dom';
import { Streamed } from './streamed';
import { type TurnActs, TurnView } from './turn';

/** Beside turns: what a slash command answered, and why something could not be done. */
export interface Told {
    readonly kind: 'told';
    readonly level: Level;
    readonly text: string;
    readonly act: HTMLElement | null;
}
export type Entry = { readonly kind: 'turn'; readonly turn: Turn } | Told;

const NEAR = 24;

export class Transcript {
    /** Scrolled by keys too, so it takes the focus. What is new is said by the announcer, in fewer words. */
    readonly root = element('main', { class: 'transcript', tabindex: 0, role: 'log', 'aria-live': 'off', 'aria-label': 'Chat' });
    private readonly content = element('div', { class: 'entries' });
    private views: (TurnView | HTMLElement)[] = [];
    private pinned = true;
    private at = 0;

    constructor(private readonly acts: TurnActs) {
        this.root.append(this.content);
        this.root.addEventListener('scroll', () => {
            const { scrollTop, scrollHeight, clientHeight } = this.root;
            // This comes late: what has been added meanwhile is no sign that the reader has left the end, going up is.
            if (scrollHeight - scrollTop - clientHeight < NEAR) {
                this.pinned = true;
            } else if (scrollTop < this.at) {
                this.pinned = false;
            }
            this.at = scrollTop;
        });
        const observer = new ResizeObserver(() => this.follow());
        observer.observe(this.content);
        observer.observe(this.root);
    }

    /** Another conversation. */
    clear(): void {
        this.views = [];
        this.content.replaceChildren();
        this.pinned = true;
    }

    /** Entries are only added, and only the last turn changes. */
    show(entries: readonly Entry[], status: string, summaries: boolean): void {
        entries.forEach((entry, at) => {
            let view = this.views[at];
            if (view === undefined) {
                view = entry.kind === 'told' ? told(entry, this.acts) : this.begun(entry.turn, summaries);
                this.views.push(view);
                this.content.append(view instanceof TurnView ? view.root : view);
            }
            if (entry.kind === 'turn' && view instanceof TurnView) {
                view.show(entry.turn, status);
            }
        });
    }

    details(toolCallId: string, input: string, output: string): void {
        for (const view of this.views) {
            if (view instanceof TurnView) {
                view.details(toolCallId, input, output);
            }
        }
    }

    private begun(turn: Turn, summaries: boolean): TurnView {
        this.pinned = true;
        return new TurnView(turn.prompt, turn.attachments, this.acts, summaries);
    }

    private follow(): void {
        if (this.pinned) {
            this.root.scrollTop = this.root.scrollHeight;
            this.at = this.root.scrollTop;
        }
    }
}

function told(entry: Told, acts: TurnActs): HTMLElement {
    const text = new Streamed(acts);
    text.show(entry.text, true);
    return element('div', { class: `told ${entry.level}` }, icon(entry.level), text.root, entry.act);
}
