/** The chat as it runs inside the web view: messages of the extension come in, what the user does goes out. */

import './style.css';
import { spent, used } from '../src/chat/figures';
import { type FromView, type Mode, MODES, type Session, type ToView, isToView } from '../src/chat/messages';
import { isRecord } from '../src/chat/shape';
import { applied, begun, failed as failedTurn, taken } from '../src/chat/turn';
import { Announcer } from './announcer';
import { Composer } from './composer';
import { button, element } from './dom';
import { SessionsPage, Welcome } from './sessions';
import { type Entry, Transcript } from './transcript';

declare function acquireVsCodeApi(): { postMessage(message: FromView): void; getState(): unknown; setState(state: unknown): void };

const vscode = acquireVsCodeApi();
const post = (message: FromView): void => vscode.postMessage(message);

let entries: Entry[] = [];
let sessions: readonly Session[] = [];
let sessionId: string | null = null;
let status = '';
/** Until the extension has said what to show, nothing is. */
let told = false;
let summaries = false;

const announcer = new Announcer();
const transcript = new Transcript({
    copy: text => {
        post({ kind: 'copy', text });
        announcer.say('Copied');
    },
    insert: text => post({ kind: 'insert', text }),
    link: url => post({ kind: 'link', url }),
    toolDetails: toolCallId => post({ kind: 'toolDetails', toolCallId }),
    showSummaries: () => post({ kind: 'fix', fix: 'thinkingDisplay' }),
    file: uri => post({ kind: 'file', uri }),
    diff: (turnId, uri) => post({ kind: 'diff', turnId, uri }),
    apply: turnId => post({ kind: 'apply', turnId }),
});
const composer = new Composer({
    ask: (prompt, mode, selection) => post({ kind: 'ask', prompt, mode, selection }),
    stop: () => post({ kind: 'stop' }),
    choose: (key, value) => post({ kind: 'choose', key, value }),
    offers: (id, word) => post({ kind: 'offers', id, word }),
    changed: keep,
    lastPrompt: () => lastTurn()?.prompt ?? '',
});
const page = new SessionsPage({
    open: id => post({ kind: 'open', sessionId: id }),
    fork: id => post({ kind: 'fork', sessionId: id }),
    delete: id => post({ kind: 'delete', sessionId: id }),
    close: () => showSessions(false),
});
const welcome = new Welcome(
    id => post({ kind: 'open', sessionId: id }),
    () => post({ kind: 'sessions' }),
);
const chat = element('div', { class: 'chat' }, welcome.root, transcript.root, composer.root);

function take(message: ToView): void {
    switch (message.kind) {
        case 'opened':
            told = true;
            entries = message.turns.map(turn => ({ kind: 'turn', turn }));
            sessionId = message.sessionId;
            status = '';
            composer.usage.textContent = '';
            transcript.clear();
            showSessions(false);
            composer.focus();
            break;
        case 'began':
            entries.push({ kind: 'turn', turn: begun(message.prompt, message.attachments, Date.now()) });
            announcer.say('Thinking');
            break;
        case 'partial': {
            const turn = lastTurn();
            if (turn !== undefined) {
                setLastTurn(taken(turn, message.value, Date.now()));
                announce(message.value);
            }
            break;
        }
        case 'status':
            status = message.text;
            break;
        case 'failed':
            failed(message);
            break;
        case 'told':
            entries.push({ kind: 'told', level: message.level, text: message.text, act: null });
            announcer.say(message.text);
            break;
        case 'choices':
            composer.pickers.show(message);
            return;
        case 'summaries':
            summaries = message.shown;
            return;
        case 'usage':
            composer.usage.textContent = spent(message.total);
            composer.usage.title = `This session: ${used(message.total)}`;
            return;
        case 'sessions':
            sessions = message.sessions;
            page.show(sessions, sessionId);
            welcome.show(sessions);
            return;
        case 'selection':
            composer.showSelection(message.label);
            return;
        case 'offers':
            composer.showOffers(message.id, message.offers);
            return;
        case 'toolDetails':
            transcript.details(message.toolCallId, message.input, message.output);
            return;
        case 'applied':
            entries = entries.map(entry =>
                entry.kind === 'turn' && entry.turn.turnId === message.turnId
                    ? { kind: 'turn', turn: applied(entry.turn, message.files) }
                    : entry,
            );
            break;
        case 'show':
            showSessions(message.what === 'sessions');
            return;
    }
    show();
}

function show(): void {
    const running = lastTurn()?.running ?? false;
    welcome.root.hidden = !told || entries.length > 0;
    transcript.root.hidden = told && entries.length === 0;
    transcript.show(entries, status, summaries);
    composer.showRunning(running);
}

function failed(message: Extract<ToView, { kind: 'failed' }>): void {
    const turn = lastTurn();
    if (turn?.running) {
        setLastTurn(failedTurn(turn, Date.now()));
    }
    const { fix, text } = message;
    const act = fix && button({ text: fix.label, class: 'primary' }, () => post({ kind: 'fix', fix: fix.fix }));
    entries.push({ kind: 'told', level: 'error', text, act });
    announcer.say(text);
}

function announce(value: Extract<ToView, { kind: 'partial' }>['value']): void {
    if (value.kind === 'tool' && value.status === 'in_progress') {
        announcer.say(value.title);
    } else if (value.kind === 'notice') {
        announcer.say(value.text);
    } else if (value.kind === 'finished' && value.result.stopReason !== 'error') {
        announcer.say(value.result.stopReason === 'end_turn' ? `Answer: ${value.result.text.slice(0, 500)}` : 'Stopped');
    }
}

function lastTurn() {
    const last = entries.findLast(entry => entry.kind === 'turn');
    return last?.kind === 'turn' ? last.turn : undefined;
}

function setLastTurn(turn: NonNullable<ReturnType<typeof lastTurn>>): void {
    const at = entries.findLastIndex(entry => entry.kind === 'turn');
    entries[at] = { kind: 'turn', turn };
}

function showSessions(shown: boolean): void {
    page.root.hidden = !shown;
    chat.hidden = shown;
    if (shown) {
        page.show(sessions, sessionId);
        page.focus();
    } else {
        composer.focus();
    }
}

/** The draft outlives the view; everything else is asked for anew. */
function keep(): void {
    vscode.setState({ draft: composer.draft, mode: composer.pickers.chosenMode });
}

function restore(): void {
    const state = vscode.getState();
    if (isRecord(state)) {
        composer.draft = typeof state['draft'] === 'string' ? state['draft'] : '';
        composer.pickers.chosenMode = MODES.find((mode: Mode) => mode === state['mode']) ?? 'agent';
    }
}

window.addEventListener('message', event => {
    if (isToView(event.data)) {
        take(event.data);
    }
});
document.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || event.isComposing) {
        return;
    }
    if (!page.root.hidden) {
        showSessions(false);
    } else if (!composer.escape() && lastTurn()?.running) {
        post({ kind: 'stop' });
    }
});
document.body.append(element('h1', { class: 'unseen' }, 'thinklsp'), chat, page.root, announcer.root);
composer.draft = '';
restore();
show();
post({ kind: 'ready' });
