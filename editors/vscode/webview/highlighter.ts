/** Colours finished code blocks, one after the other, with the pieces that the extension sends. */

import type { Token } from '../src/chat/messages';
import { element } from './dom';

export class Highlighter {
    private readonly blocks = new Map<number, HTMLElement>();
    private count = 0;

    constructor(private readonly request: (id: number, language: string, text: string) => void) {}

    ask(block: HTMLElement, language: string, text: string): void {
        this.count += 1;
        this.blocks.set(this.count, block);
        this.request(this.count, language, text);
    }

    show(id: number, tokens: readonly Token[]): void {
        const block = this.blocks.get(id);
        this.blocks.delete(id);
        block?.replaceChildren(...tokens.map(({ text, style }) => (style === '' ? text : element('span', { class: `token-${style}` }, text))));
    }
}
