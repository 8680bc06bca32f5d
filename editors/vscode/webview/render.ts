/** Parsed Markdown as elements. Only what is listed here is made; images show their words, links lead nowhere unless
 * they are clicked, and then only the extension opens them. */

import type { Token } from 'markdown-it';
import { button, element } from './dom';
import { parsed } from './markdown';

export interface Acts {
    copy(text: string): void;
    insert(text: string): void;
    link(url: string): void;
}

const ALIGNED = /^text-align:(left|center|right)$/;
const PLAIN = new Set([
    'p', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'hr', 'br', 'strong', 'em', 's', 'code',
    'thead', 'tbody', 'tr', 'th', 'td',
] as const);
type Plain = typeof PLAIN extends Set<infer T> ? T : never;

export function rendered(source: string, acts: Acts): DocumentFragment {
    const root = document.createDocumentFragment();
    build(parsed(source), root, acts);
    return root;
}

function build(tokens: readonly Token[], root: ParentNode, acts: Acts): void {
    const open: ParentNode[] = [root];
    for (const token of tokens) {
        const parent = open.at(-1) ?? root;
        if (token.nesting < 0) {
            // A paragraph of a tight list has no element of its own, and so nothing to close.
            if (!token.hidden) {
                open.pop();
            }
        } else if (token.type === 'inline') {
            build(token.children ?? [], parent, acts);
        } else if (!token.hidden) {
            const [made, inside] = one(token, acts);
            parent.append(made);
            if (token.nesting > 0) {
                open.push(inside);
            }
        }
    }
}

/** What is put there, and what takes what is inside of it. */
function one(token: Token, acts: Acts): [Node, ParentNode] {
    let made: HTMLElement;
    switch (token.type) {
        case 'fence':
        case 'code_block':
            made = code(token.content, token.info, acts);
            break;
        case 'code_inline':
            made = element('code', {}, token.content);
            break;
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
        element('pre', { tabindex: 0, role: 'group', 'aria-label': name }, element('code', {}, text)),
        element(
            'div',
            { class: 'code-actions' },
            button({ label: 'Copy', icon: 'copy' }, () => acts.copy(text)),
            button({ label: 'Insert at Cursor', icon: 'insert' }, () => acts.insert(text)),
        ),
    );
}

function link(url: string, acts: Acts): HTMLElement {
    // Without an address the view's own frame would not follow it, whatever is clicked with.
    const made = element('a', { role: 'link', tabindex: 0, title: url });
    const open = (event: Event): void => {
        event.preventDefault();
        acts.link(url);
    };
    made.addEventListener('click', open);
    made.addEventListener('keydown', event => event.key === 'Enter' && open(event));
    return made;
}

/** The headings of an answer stand below the view's own. */
function lower(tag: Plain): keyof HTMLElementTagNameMap {
    const level = /^h([1-6])$/.exec(tag)?.[1];
    return level === undefined ? tag : (`h${Math.min(6, Number(level) + 2)}` as 'h3');
}

function isPlain(tag: string): tag is Plain {
    return (PLAIN as ReadonlySet<string>).has(tag);
}
