/** The sessions of the workspace: the whole list as a page of its own, and the newest where a chat begins. */

import { ago, cost, tokens } from '../src/chat/figures';
import type { Session } from '../src/chat/messages';
import { button, element } from './dom';

export interface SessionActs {
    open(sessionId: string): void;
    fork(sessionId: string): void;
    delete(sessionId: string): void;
    close(): void;
}

const RECENT = 3;

export class SessionsPage {
    readonly root: HTMLElement;
    private readonly list = element('ul', { class: 'sessions' });
    private readonly back: HTMLButtonElement;

    constructor(private readonly acts: SessionActs) {
        this.back = button({ label: 'Back to the Chat', icon: 'back' }, () => acts.close());
        const head = element('header', {}, this.back, element('h2', {}, 'Sessions'));
        this.root = element('section', { class: 'page', 'aria-label': 'Sessions', hidden: true }, head, this.list);
    }

    show(sessions: readonly Session[], current: string | null): void {
        const focused = this.list.contains(document.activeElement);
        const rows = sessions.map(session => this.row(session, session.sessionId === current));
        this.list.replaceChildren(...(rows.length > 0 ? rows : [element('li', { class: 'nothing' }, 'There is no session here yet.')]));
        if (focused) {
            this.focus();
        }
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
                button({ label: `Fork ${title}`, icon: 'fork' }, () => this.acts.fork(sessionId)),
                button({ label: `Delete ${title}`, icon: 'trash' }, () => this.acts.delete(sessionId)),
            ),
        );
    }
}

/** What stands there before anything was asked. */
export class Welcome {
    readonly root: HTMLElement;
    private readonly recent = element('div', { class: 'recent' });

    constructor(
        private readonly open: (sessionId: string) => void,
        private readonly all: () => void,
    ) {
        this.root = element(
            'div',
            { class: 'welcome' },
            element('h2', {}, 'Ask about your code'),
            element('p', {}, 'Selected code goes along. Type @ to refer to files, / for commands.'),
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
    const { inputTokens, outputTokens, costUsd } = session.usage;
    const facts = [
        session.busy ? 'running' : ago(session.updated, Date.now()),
        inputTokens === null && outputTokens === null ? '' : `${tokens((inputTokens ?? 0) + (outputTokens ?? 0))} tokens`,
        costUsd === null ? '' : cost(costUsd),
    ];
    const made = element(
        'button',
        { type: 'button', class: 'open-session', title: session.title },
        element('span', { class: 'session-title' }, session.title || 'Untitled'),
        element('span', { class: 'session-facts' }, facts.filter(fact => fact !== '').join(' · ')),
    );
    made.addEventListener('click', act);
    return made;
}
