/** The list of turns and notices. It stays scrolled to its end unless the reader scrolls up. */

import type { Decided, Level, ShownFinding, Turn } from '../src/chat/messages';
import { element, icon } from './dom';
import { Streamed } from './streamed';
import { type TurnActs, TurnView } from './turn';

/** An entry between turns: the result of a slash command, or an error. */
export interface Told {
    readonly kind: 'told';
    readonly level: Level;
    readonly text: string;
    readonly buttons: readonly HTMLElement[];
}
export type Entry = { readonly kind: 'turn'; readonly turn: Turn } | Told;

const NEAR = 24;

export class Transcript {
    /** Focusable, so that keys can scroll it. The announcer reads out new entries in short form. */
    readonly root = element('main', { class: 'transcript', tabindex: 0, role: 'log', 'aria-live': 'off', 'aria-label': 'Chat' });
    private readonly content = element('div', { class: 'entries' });
    private views: (TurnView | HTMLElement)[] = [];
    private pinned = true;
    private at = 0;

    constructor(private readonly acts: TurnActs) {
        this.root.append(this.content);
        this.root.addEventListener('scroll', () => {
            const { scrollTop, scrollHeight, clientHeight } = this.root;
            // The event may come after more entries were added, so only scrolling up unpins the end.
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

    /** Removes all entries for another conversation. */
    clear(): void {
        this.views = [];
        this.content.replaceChildren();
        this.pinned = true;
    }

    /** Shows the entries. Entries are only appended, and only the last turn changes. */
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

    /** Shows the findings of a turn, by the number of its entry. */
    findings(entry: number, turnId: string, findings: readonly ShownFinding[]): void {
        const view = this.views[entry];
        if (view instanceof TurnView) {
            view.showFindings(turnId, findings);
        }
    }

    /** Shows what the user has kept and undone of a turn's files, by the number of its entry. */
    decided(entry: number, files: readonly Decided[]): void {
        const view = this.views[entry];
        if (view instanceof TurnView) {
            view.showDecided(files);
        }
    }

    private begun(turn: Turn, summaries: boolean): TurnView {
        this.pinned = true;
        const number = this.views.filter(view => view instanceof TurnView).length;
        return new TurnView(number, turn, this.acts, summaries);
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
    return element('div', { class: `told ${entry.level}` }, icon(entry.level), text.root, entry.buttons.length > 0 && element('div', { class: 'buttons' }, ...entry.buttons));
}
