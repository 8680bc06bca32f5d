/** Markdown that arrives in pieces. What is closed is parsed and shown once; only the last block is still open. Pure.
 *
 * References to links (`[a]: address`) are not read, because one at the end could change a block at the beginning.
 */

import MarkdownIt, { type Token } from 'markdown-it';

const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false }).disable('reference');

// How much a block must have grown before it is looked at again: so that looking costs a constant for each character.
const GROWN = 1.25;

export function parsed(source: string): Token[] {
    return markdown.parse(source, {});
}

export class Stream {
    /** The source of what may still change. */
    open = '';
    /** Characters that were looked through for an end so far. */
    examined = 0;
    private notBefore = 0;

    /** The sources of the blocks that are closed now: whatever follows, they stay as they are. */
    push(delta: string): string[] {
        this.open += delta.replaceAll('\r', '');
        // Half a line tells nothing: `+` may begin a list, `+x` goes on with the paragraph above.
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

/** Where the blocks at the top begin; the first is at 0. */
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
