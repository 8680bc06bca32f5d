/** The list of the workspace's sessions, and the newest ones on the start page of a chat. */

import { ago, spent } from '../src/chat/figures';
import type { Session } from '../src/chat/messages';
import { button, element } from './dom';

export interface SessionActs {
    open(sessionId: string): void;
    fork(sessionId: string): void;
    rename(sessionId: string, title: string): void;
    export(sessionId: string): void;
    delete(sessionId: string): void;
    close(): void;
}

const RECENT = 3;
const EXAMPLES = ['Explain what this file does', 'Find bugs in this file and fix them', 'Write tests for this file'];

export class SessionsPage {
    readonly root: HTMLElement;
    private readonly list = element('ul', { class: 'sessions' });
    private readonly back: HTMLButtonElement;
    private readonly search = element('input', { type: 'search', 'aria-label': 'Search the sessions', placeholder: 'Search' });
    private sessions: readonly Session[] = [];
    private current: string | null = null;

    constructor(private readonly acts: SessionActs) {
        this.back = button({ label: 'Back to the Chat', icon: 'back' }, () => acts.close());
        const head = element('header', {}, this.back, element('h2', {}, 'Sessions'), this.search);
        this.search.addEventListener('input', () => this.show(this.sessions, this.current));
        this.root = element('section', { class: 'page', 'aria-label': 'Sessions', hidden: true }, head, this.list);
    }

    show(sessions: readonly Session[], current: string | null): void {
        this.sessions = sessions;
        this.current = current;
        const focused = this.list.contains(document.activeElement);
        const words = this.search.value.toLowerCase().split(/\s+/);
        const found = sessions.filter(({ title }) => words.every(word => title.toLowerCase().includes(word)));
        const rows = found.map(session => this.row(session, session.sessionId === current));
        const nothing = sessions.length > 0 ? 'No title has these words.' : 'No sessions yet.';
        this.list.replaceChildren(...(rows.length > 0 ? rows : [element('li', { class: 'nothing' }, nothing)]));
        if (focused) {
            this.focus();
        }
    }

    /** Shows all sessions again. */
    clearSearch(): void {
        this.search.value = '';
    }

    focus(): void {
        (this.list.querySelector('button') ?? this.back).focus();
    }

    private row(session: Session, current: boolean): HTMLElement {
        const { sessionId, title } = session;
        const open = opener(session, () => this.acts.open(sessionId));
        if (current) {
            open.setAttribute('aria-current', 'true');
        }
        return element(
            'li',
            { class: 'session' },
            open,
            element(
                'span',
                { class: 'session-actions' },
                button({ label: `Rename ${title}`, icon: 'edit' }, () => this.acts.rename(sessionId, title)),
                button({ label: `Export ${title}`, icon: 'export' }, () => this.acts.export(sessionId)),
                button({ label: `Fork ${title}`, icon: 'fork' }, () => this.acts.fork(sessionId)),
                button({ label: `Delete ${title}`, icon: 'trash' }, () => this.acts.delete(sessionId)),
            ),
        );
    }
}

/** The start page of an empty chat. */
export class Welcome {
    readonly root: HTMLElement;
    private readonly recent = element('div', { class: 'recent' });

    constructor(
        private readonly open: (sessionId: string) => void,
        private readonly all: () => void,
        fill: (prompt: string) => void,
    ) {
        const example = (prompt: string) => button({ text: prompt, class: 'example' }, () => fill(prompt));
        const examples = EXAMPLES.map(prompt => element('li', {}, example(prompt)));
        this.root = element(
            'div',
            { class: 'welcome' },
            element('h2', {}, 'Ask about your code'),
            element('p', {}, 'The active file or the selection is included. Type @ to add files, / for commands.'),
            element('ul', { class: 'examples', 'aria-label': 'Example prompts' }, ...examples),
            this.recent,
        );
    }

    show(sessions: readonly Session[]): void {
        const newest = sessions.slice(0, RECENT);
        const rows = newest.map(session => element('li', { class: 'session' }, opener(session, () => this.open(session.sessionId))));
        const more = sessions.length > RECENT && button({ text: 'All Sessions', class: 'link' }, () => this.all());
        this.recent.replaceChildren(
            ...(rows.length > 0 ? [element('h3', {}, 'Recent'), element('ul', { class: 'sessions' }, ...rows)] : []),
            ...(more ? [more] : []),
        );
    }
}

function opener(session: Session, act: () => void): HTMLButtonElement {
    const facts = [session.busy ? 'running' : ago(session.updated, Date.now()), spent(session.usage)];
    const made = element(
        'button',
        { type: 'button', class: 'open-session', title: session.title },
        element('span', { class: 'session-title' }, session.title || 'Untitled'),
        element('span', { class: 'session-facts' }, facts.filter(fact => fact !== '').join(' · ')),
    );
    made.addEventListener('click', act);
    return made;
}
