/** Renders Markdown while it arrives. Closed blocks are rendered once; the open block is rendered again, within a small
 * share of the time. */

import { element } from './dom';
import { Stream } from './markdown';
import { type Acts, rendered } from './render';

const SHARE = 8;

export class Streamed {
    readonly root = element('div', { class: 'markdown' });
    private readonly stream = new Stream();
    private readonly tail = element('div', { class: 'open-block' });
    private shown = 0;
    private timer: number | undefined;
    private pause = 0;
    private ended = false;

    constructor(private readonly acts: Acts) {
        this.root.append(this.tail);
    }

    /** Shows the whole text so far, which only grows. `ended`: the text is complete. */
    show(text: string, ended: boolean): void {
        const delta = text.slice(this.shown);
        this.shown = text.length;
        if (delta !== '') {
            for (const source of this.stream.push(delta)) {
                this.tail.before(rendered(source, this.acts));
            }
        }
        if (ended) {
            if (!this.ended || delta !== '') {
                window.clearTimeout(this.timer);
                this.timer = undefined;
                this.paint(true);
            }
            this.ended = true;
        } else if (delta !== '') {
            this.timer ??= window.setTimeout(() => {
                this.timer = undefined;
                this.paint(false);
            }, this.pause);
        }
    }

    private paint(isFinished: boolean): void {
        const began = performance.now();
        this.tail.replaceChildren(rendered(this.stream.open, this.acts, isFinished));
        this.pause = Math.max(16, SHARE * (performance.now() - began));
    }
}
