/** Markdown on the screen while it arrives. Closed blocks are never touched again; the open one is made anew, but never
 * for more than a small part of the time. */

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

    constructor(private readonly acts: Acts) {
        this.root.append(this.tail);
    }

    /** The whole text so far; what was shown before is its beginning. `ended`: nothing follows. */
    show(text: string, ended: boolean): void {
        const delta = text.slice(this.shown);
        this.shown = text.length;
        if (delta !== '') {
            for (const source of this.stream.push(delta)) {
                this.tail.before(rendered(source, this.acts));
            }
        }
        if (ended) {
            window.clearTimeout(this.timer);
            this.timer = undefined;
            this.paint();
        } else if (delta !== '') {
            this.timer ??= window.setTimeout(() => {
                this.timer = undefined;
                this.paint();
            }, this.pause);
        }
    }

    private paint(): void {
        const began = performance.now();
        this.tail.replaceChildren(rendered(this.stream.open, this.acts));
        this.pause = Math.max(16, SHARE * (performance.now() - began));
    }
}
