/** Renders parsed Markdown as elements. Only the element types listed here are created. Images show their alternative
 * text, and the extension opens a link only after a click. */

import type { Token } from 'markdown-it';
import { terminalLine } from '../src/chat/code';
import { splitPlaces } from '../src/chat/places';
import { button, element } from './dom';
import { parsed } from './markdown';

export interface Acts {
    copy(text: string): void;
    insert(text: string): void;
    applyCode(info: string, text: string): void;
    terminal(language: string, text: string): void;
    /** Asks for colours for a finished code block. */
    highlight(block: HTMLElement, language: string, text: string): void;
    link(url: string): void;
}

const ALIGNED = /^text-align:(left|center|right)$/;
const PLAIN = new Set([
    'p', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'hr', 'br', 'strong', 'em', 's', 'code',
    'thead', 'tbody', 'tr', 'th', 'td',
] as const);
type Plain = typeof PLAIN extends Set<infer T> ? T : never;

/** `isFinished`: the text cannot change any more, so that its code blocks are highlighted. */
export function rendered(source: string, acts: Acts, isFinished = true): DocumentFragment {
    const root = document.createDocumentFragment();
    build(parsed(source), root, acts);
    for (const block of isFinished ? root.querySelectorAll<HTMLElement>('code[data-language]') : []) {
        acts.highlight(block, block.dataset['language'] ?? '', block.textContent ?? '');
    }
    return root;
}

function build(tokens: readonly Token[], root: ParentNode, acts: Acts): void {
    const open: ParentNode[] = [root];
    for (const token of tokens) {
        const parent = open.at(-1) ?? root;
        if (token.nesting < 0) {
            // A paragraph of a tight list has no element, so there is nothing to close.
            if (!token.hidden) {
                open.pop();
            }
        } else if (token.type === 'inline') {
            build(token.children ?? [], parent, acts);
            checkBox(parent);
        } else if (!token.hidden) {
            const isInLink = open.some(node => node instanceof HTMLAnchorElement);
            const [made, inside] = one(token, acts, isInLink);
            parent.append(made);
            if (token.nesting > 0) {
                open.push(inside);
            }
        }
    }
}

/** Returns the element of a token and the element that receives its children. */
function one(token: Token, acts: Acts, isInLink: boolean): [Node, ParentNode] {
    let made: HTMLElement;
    switch (token.type) {
        case 'fence':
        case 'code_block':
            made = code(token.content, token.info, acts);
            break;
        case 'code_inline':
            made = element('code', {}, ...(isInLink ? [token.content] : placed(token.content, acts)));
            break;
        case 'text': {
            const text = document.createDocumentFragment();
            text.append(...(isInLink ? [token.content] : placed(token.content, acts)));
            return [text, text];
        }
        case 'image':
            made = element('span', { class: 'image' }, token.content || 'image');
            break;
        case 'link_open':
            made = link(String(token.attrGet('href') ?? ''), acts);
            break;
        case 'table_open': {
            const table = element('table');
            return [element('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table' }, table), table];
        }
        case 'softbreak':
            return [document.createTextNode('\n'), document.createDocumentFragment()];
        default:
            if (!isPlain(token.tag)) {
                return [document.createTextNode(token.content), document.createDocumentFragment()];
            }
            made = element(lower(token.tag));
            adorn(made, token);
    }
    return [made, made];
}

function adorn(made: HTMLElement, token: Token): void {
    const aligned = ALIGNED.exec(String(token.attrGet('style') ?? ''))?.[1];
    if (aligned !== undefined) {
        made.classList.add(`align-${aligned}`);
    }
    const start = token.attrGet('start');
    if (made instanceof HTMLOListElement && start !== null) {
        made.start = Number(start);
    }
}

function code(content: string, info: string, acts: Acts): HTMLElement {
    const text = content.replace(/\n$/, '');
    const language = info.trim().split(/\s/)[0] ?? '';
    const name = language === '' ? 'Code' : `Code, ${language}`;
    return element(
        'div',
        { class: 'code-block' },
        element('pre', { tabindex: 0, role: 'group', 'aria-label': name }, element('code', { 'data-language': language || undefined }, text)),
        element(
            'div',
            { class: 'code-actions' },
            button({ label: 'Copy', icon: 'copy' }, () => acts.copy(text)),
            button({ label: 'Insert at Cursor', icon: 'insert' }, () => acts.insert(text)),
            button({ label: 'Apply to File', icon: 'apply' }, () => acts.applyCode(info, text)),
            terminalLine(language, text) !== undefined &&
                button({ label: 'Put into Terminal', icon: 'terminal' }, () => acts.terminal(language, text)),
        ),
    );
}

/** Returns a text in which places like `src/app.py:10` are links. */
function placed(text: string, acts: Acts): (string | HTMLElement)[] {
    return splitPlaces(text).map(piece => {
        if (!piece.isPlace) {
            return piece.text;
        }
        const made = link(piece.text, acts);
        made.classList.add('place');
        made.append(piece.text);
        return made;
    });
}

/** Shows the `[ ]` or `[x]` of a task as a check box. */
function checkBox(parent: ParentNode): void {
    const item = parent instanceof HTMLElement && parent.closest('li');
    const first = parent.firstChild;
    const mark = first instanceof Text ? /^\[([ xX])\] /.exec(first.data) : null;
    if (item && mark !== null && first instanceof Text && item.firstChild === (item === parent ? first : parent)) {
        first.data = first.data.slice(mark[0].length);
        const checked = mark[1] !== ' ';
        first.before(element('input', { type: 'checkbox', disabled: true, checked, 'aria-label': checked ? 'Done' : 'To do' }), ' ');
        item.classList.add('task');
    }
}

export function link(url: string, acts: Acts): HTMLElement {
    // Without an href the web view's frame cannot follow the link by itself.
    const made = element('a', { role: 'link', tabindex: 0, title: url });
    const open = (event: Event): void => {
        event.preventDefault();
        acts.link(url);
    };
    made.addEventListener('click', open);
    made.addEventListener('keydown', event => event.key === 'Enter' && open(event));
    return made;
}

/** Returns the level of a heading, below the headings of the view itself. */
function lower(tag: Plain): keyof HTMLElementTagNameMap {
    const level = /^h([1-6])$/.exec(tag)?.[1];
    return level === undefined ? tag : (`h${Math.min(6, Number(level) + 2)}` as 'h3');
}

function isPlain(tag: string): tag is Plain {
    return (PLAIN as ReadonlySet<string>).has(tag);
}
