/** The chat inside the web view: receives messages of the extension and sends the user's actions. */

import './style.css';
import { spent, used } from '../src/chat/figures';
import { type FromView, type Mode, MODES, type Session, type ToView, isToView } from '../src/chat/messages';
import { isRecord } from '../src/chat/shape';
import { applied, begun, closed, failed as failedTurn, taken } from '../src/chat/turn';
import { Announcer } from './announcer';
import { Composer } from './composer';
import { button, element } from './dom';
import { Highlighter } from './highlighter';
import { QuestionsView } from './questions';
import { SessionsPage, Welcome } from './sessions';
import { type Entry, Transcript } from './transcript';

declare function acquireVsCodeApi(): { postMessage(message: FromView): void; getState(): unknown; setState(state: unknown): void };

const vscode = acquireVsCodeApi();
const post = (message: FromView): void => vscode.postMessage(message);

let entries: Entry[] = [];
let sessions: readonly Session[] = [];
/** Undefined for a new conversation, whose session the view does not know. */
let sessionId: string | undefined;
let status = '';
/** Nothing is shown until the extension has sent the first state. */
let told = false;
let summaries = false;
/** Whether the next conversation continues this one, as the fork that an edited prompt makes. */
let continues = false;

const announcer = new Announcer();
const highlighter = new Highlighter((id, language, text) => post({ kind: 'highlight', id, language, text }));
const transcript = new Transcript({
    copy: text => {
        post({ kind: 'copy', text });
        announcer.say('Copied');
    },
    insert: text => post({ kind: 'insert', text }),
    applyCode: (info, text) => post({ kind: 'applyCode', info, text }),
    terminal: (language, text) => post({ kind: 'terminal', language, text }),
    highlight: (block, language, text) => highlighter.ask(block, language, text),
    check: (turnId, number, checked) => post({ kind: 'check', turnId, number, checked }),
    link: url => post({ kind: 'link', url }),
    toolDetails: toolCallId => post({ kind: 'toolDetails', toolCallId }),
    showSummaries: () => post({ kind: 'fix', fix: 'thinkingDisplay' }),
    file: uri => post({ kind: 'file', uri }),
    diff: (turnId, uri) => post({ kind: 'diff', turnId, uri }),
    apply: turnId => post({ kind: 'apply', turnId }),
    discard: turnId => post({ kind: 'discard', turnId }),
    retry,
    decide: (turnId, uri, how) => post({ kind: 'decide', turnId, uri, how }),
});
const composer = new Composer({
    ask: (prompt, mode, place, images) => post({ kind: 'ask', prompt, mode, place, images }),
    warn: text => take({ kind: 'told', level: 'warning', text }),
    stop: () => post({ kind: 'stop' }),
    unqueue: id => post({ kind: 'unqueue', id }),
    choose: (key, value) => post({ kind: 'choose', key, value }),
    setKey: () => post({ kind: 'fix', fix: 'setKey' }),
    offers: (id, word) => post({ kind: 'offers', id, word }),
    changed: keep,
    lastPrompt: () => lastTurn()?.prompt ?? '',
});
const page = new SessionsPage({
    open: id => post({ kind: 'open', sessionId: id }),
    fork: id => post({ kind: 'fork', sessionId: id }),
    rename: (id, title) => post({ kind: 'rename', sessionId: id, title }),
    export: id => post({ kind: 'export', sessionId: id }),
    delete: id => post({ kind: 'delete', sessionId: id }),
    close: () => showSessions(false),
});
const welcome = new Welcome(
    id => post({ kind: 'open', sessionId: id }),
    () => post({ kind: 'sessions' }),
    fill,
);
const questions = new QuestionsView((id, option) => post({ kind: 'answer', id, option }));
const chat = element('div', { class: 'chat' }, welcome.root, transcript.root, questions.root, composer.root);

function take(message: ToView): void {
    switch (message.kind) {
        case 'opened':
            if (told && !continues && (message.sessionId === null || message.sessionId !== sessionId)) {
                composer.leavesOut = false;
                keep();
            }
            told = true;
            continues = false;
            entries = message.turns.map(turn => ({ kind: 'turn', turn }));
            sessionId = message.sessionId ?? undefined;
            status = '';
            composer.usage.textContent = '';
            transcript.clear();
            showSessions(false);
            composer.focus();
            break;
        case 'began': {
            const before = lastTurn();
            if (before?.running) {
                setLastTurn(closed(before, Date.now()));
                show();
            }
            entries.push({ kind: 'turn', turn: begun(message.prompt, message.attachments, Date.now(), message.images) });
            announcer.say('Thinking');
            break;
        }
        case 'queued':
            composer.showQueue(message.prompts);
            return;
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
            entries.push({ kind: 'told', level: message.level, text: message.text, buttons: [] });
            announcer.say(message.text);
            break;
        case 'choices':
            composer.pickers.show(message);
            return;
        case 'summaries':
            summaries = message.shown;
            return;
        case 'usage':
            // The first turn shows the same figures.
            composer.usage.textContent = message.turns > 1 ? `Session: ${spent(message.total)}` : '';
            composer.usage.title = `This session: ${used(message.total)}`;
            return;
        case 'sessions':
            sessions = message.sessions;
            page.show(sessions, sessionId ?? null);
            welcome.show(sessions);
            return;
        case 'context':
            composer.showContext(message.place);
            return;
        case 'questions':
            if (questions.show(message.questions)) {
                composer.focus();
            }
            message.questions.slice(-1).forEach(({ text }) => announcer.say(`Question: ${text}`));
            return;
        case 'draft':
            composer.pictures.restore(message.images ?? []);
            if (composer.draft === '') {
                fill(message.text);
            }
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
        case 'findings':
            transcript.findings(numberOf(message.turnId), message.turnId, message.findings);
            return;
        case 'highlighted':
            highlighter.show(message.id, message.tokens);
            return;
        case 'decided':
            transcript.decided(numberOf(message.turnId), message.files);
            return;
        case 'show':
            showSessions(message.what === 'sessions');
            if (message.what === 'questions') {
                questions.focus();
            }
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
    const { fixes, text } = message;
    const number = entries.filter(entry => entry.kind === 'turn').length - 1;
    const buttons = fixes.map(({ label, fix }, at) =>
        button({ text: label, class: at === 0 ? 'primary' : 'secondary' }, () =>
            fix === 'retry' ? turn && retry(number, turn.prompt, turn.prompt) : post({ kind: 'fix', fix }),
        ),
    );
    entries.push({ kind: 'told', level: 'error', text, buttons });
    announcer.say(text);
}

function retry(number: number, before: string, prompt: string): void {
    continues = true;
    post({ kind: 'retry', turn: number, before, prompt, mode: composer.pickers.chosenMode });
}

/** Puts a prompt into the text field, where the user can change and send it. */
function fill(prompt: string): void {
    composer.draft = prompt;
    keep();
    composer.focus();
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

function numberOf(turnId: string): number {
    return entries.findLastIndex(entry => entry.kind === 'turn' && entry.turn.turnId === turnId);
}

function setLastTurn(turn: NonNullable<ReturnType<typeof lastTurn>>): void {
    const at = entries.findLastIndex(entry => entry.kind === 'turn');
    entries[at] = { kind: 'turn', turn };
}

function showSessions(shown: boolean): void {
    page.root.hidden = !shown;
    chat.hidden = shown;
    if (shown) {
        page.clearSearch();
        page.show(sessions, sessionId ?? null);
        page.focus();
    } else {
        composer.focus();
    }
}

/** Stores the draft, which outlives the view. Everything else is requested again. */
function keep(): void {
    vscode.setState({ draft: composer.draft, mode: composer.pickers.chosenMode, leavesOut: composer.leavesOut });
}

function restore(): void {
    const state = vscode.getState();
    if (isRecord(state)) {
        composer.draft = typeof state['draft'] === 'string' ? state['draft'] : '';
        composer.pickers.chosenMode = MODES.find((mode: Mode) => mode === state['mode']) ?? 'agent';
        composer.leavesOut = state['leavesOut'] === true;
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
