/** Splits Markdown that arrives in pieces into closed blocks, which are rendered once, and the last, open block. Pure.
 *
 * Link reference definitions (`[a]: address`) are ignored, because one at the end could change an earlier block.
 */

import MarkdownIt, { type Token } from 'markdown-it';

const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false }).disable('reference');

// A block must grow by this factor before it is parsed again, so that parsing costs are linear.
const GROWN = 1.25;

export function parsed(source: string): Token[] {
    return markdown.parse(source, {});
}

export class Stream {
    /** The source of the open block. */
    open = '';
    /** The number of characters parsed so far in search of block ends. */
    examined = 0;
    private notBefore = 0;

    /** Adds text; returns the sources of the blocks that are now closed and cannot change any more. */
    push(delta: string): string[] {
        this.open += delta.replaceAll('\r', '');
        // An incomplete line is ambiguous: `+` may start a list, while `+x` continues the paragraph above.
        const whole = delta.includes('\n') ? this.open.lastIndexOf('\n') + 1 : 0;
        if (whole <= this.notBefore) {
            return [];
        }
        const source = this.open.slice(0, whole);
        this.examined += source.length;
        const starts = blockStarts(source);
        const last = starts.at(-1) ?? 0;
        if (last === 0) {
            this.notBefore = whole * GROWN;
            return [];
        }
        this.notBefore = 0;
        this.open = this.open.slice(last);
        return starts.slice(0, -1).map((start, number) => source.slice(start, starts[number + 1]));
    }
}

/** Returns the offsets at which top-level blocks start. */
function blockStarts(source: string): number[] {
    const lines: number[] = [];
    for (const token of parsed(source)) {
        if (token.level === 0 && token.nesting >= 0 && token.map !== null) {
            lines.push(token.map[0]);
        }
    }
    const offsets = [0];
    let line = 0;
    let at = 0;
    for (const wanted of lines.slice(1)) {
        for (; line < wanted; line += 1) {
            at = source.indexOf('\n', at) + 1;
        }
        offsets.push(at);
    }
    return offsets;
}
