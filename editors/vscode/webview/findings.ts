/** The findings of a review as a list with check boxes. */

import type { ShownFinding } from '../src/chat/messages';
import { element, icon } from './dom';
import { type Acts, link, rendered } from './render';

export interface FindingActs extends Acts {
    check(turnId: string, number: number, checked: boolean): void;
}

export class FindingsView {
    readonly root = element('section', { class: 'findings', 'aria-label': 'Findings', hidden: true });
    private readonly head = element('div', { class: 'findings-head' });
    private readonly list = element('ul');
    private shown: readonly ShownFinding[] = [];

    constructor(private readonly acts: FindingActs) {
        this.root.append(this.head, this.list);
    }

    show(turnId: string, findings: readonly ShownFinding[]): void {
        if (findings === this.shown) {
            return;
        }
        const open = findings.filter(({ checked }) => !checked).length;
        this.head.textContent = `Findings: ${open} of ${findings.length} open`;
        if (findings.length !== this.shown.length) {
            this.list.replaceChildren(...findings.map((finding, number) => this.row(turnId, number, finding)));
        }
        findings.forEach(({ checked }, number) => {
            const box = this.list.children[number]?.querySelector('input');
            if (box) {
                box.checked = checked;
            }
        });
        this.shown = findings;
        this.root.hidden = false;
    }

    private row(turnId: string, number: number, { place, level, message }: ShownFinding): HTMLElement {
        const box = element('input', { type: 'checkbox', 'aria-label': `Done: ${place}` });
        box.addEventListener('change', () => this.acts.check(turnId, number, box.checked));
        const where = link(place, this.acts);
        where.append(place);
        const text = element('div', { class: 'markdown' });
        text.append(rendered(message, this.acts));
        const said = element('span', { class: 'unseen' }, `${level}: `);
        return element('li', { class: level }, box, icon(level), element('div', { class: 'finding' }, said, where, text));
    }
}

/** Removes the list items that the findings replace, and the lists that are then empty. */
export function removeWritten(body: HTMLElement): void {
    for (const item of body.querySelectorAll('.markdown ul > li')) {
        const list = item.parentElement;
        if (item.querySelector(':scope > .place, :scope > code > .place, :scope > p:first-child > .place') !== null) {
            item.remove();
        }
        if (list?.children.length === 0) {
            list.remove();
        }
    }
}
