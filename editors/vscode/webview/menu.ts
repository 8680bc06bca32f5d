/** A button that shows its value and opens a list of values, each with a line that explains it. */

import { element, icon } from './dom';

export interface MenuItem {
    value: string;
    label: string;
    detail?: string;
    group?: string;
}

/** Keys that are typed within this time search for one word. */
const TYPED_MS = 800;

export class Menu {
    readonly button: HTMLButtonElement;
    readonly list: HTMLElement;
    private readonly label = element('span', { class: 'line' });
    private items: readonly MenuItem[] = [];
    private options: HTMLElement[] = [];
    private value = '';
    private at = 0;
    private typed = { text: '', at: 0 };

    constructor(
        private readonly name: string,
        private readonly choose: (value: string) => void,
    ) {
        const id = `menu-${name.toLowerCase()}`;
        this.list = element('div', { id, class: 'offers menu', role: 'listbox', 'aria-label': name, tabindex: -1, hidden: true });
        this.button = element(
            'button',
            {
                type: 'button',
                class: 'picker',
                role: 'combobox',
                'aria-label': name,
                'aria-haspopup': 'listbox',
                'aria-expanded': 'false',
                'aria-controls': id,
            },
            this.label,
            icon('down'),
        );
        this.button.addEventListener('click', () => (this.list.hidden ? this.open() : this.close()));
        this.button.addEventListener('blur', () => this.close());
        this.button.addEventListener('keydown', event => this.key(event));
        // The focus stays on the button.
        this.list.addEventListener('mousedown', event => event.preventDefault());
    }

    get chosen(): string {
        return this.value;
    }

    /** Shows the items and the current value, by default with the label of its item. */
    show(items: readonly MenuItem[], value: string, label?: string): void {
        this.items = items;
        this.value = value;
        this.label.textContent = label ?? items.find(item => item.value === value)?.label ?? value;
        this.button.title = `${this.name}: ${this.label.textContent}`;
        this.button.dataset['value'] = value;
        this.button.disabled = items.length === 0;
        if (!this.list.hidden) {
            this.open();
        }
    }

    private open(): void {
        const groups = new Map<string, HTMLElement>();
        this.options = this.items.map((item, at) => this.option(item, at));
        this.list.replaceChildren();
        this.items.forEach(({ group }, at) => {
            if (group !== undefined && !groups.has(group)) {
                const title = element('div', { class: 'menu-group', 'aria-hidden': 'true' }, group);
                groups.set(group, element('div', { role: 'group', 'aria-label': group }, title));
                this.list.append(groups.get(group)!);
            }
            const parent = group === undefined ? this.list : groups.get(group)!;
            parent.append(...this.options.slice(at, at + 1));
        });
        this.list.hidden = false;
        this.button.setAttribute('aria-expanded', 'true');
        this.mark(Math.max(0, this.items.findIndex(item => item.value === this.value)));
    }

    private close(): void {
        this.list.hidden = true;
        this.button.setAttribute('aria-expanded', 'false');
        this.button.removeAttribute('aria-activedescendant');
    }

    private option({ value, label, detail }: MenuItem, at: number): HTMLElement {
        const made = element(
            'div',
            { id: `${this.list.id}-${at}`, class: 'option', role: 'option', 'aria-selected': 'false', 'data-value': value },
            icon(value === this.value ? 'check' : 'none'),
            element(
                'span',
                { class: 'option-text' },
                element('span', {}, label),
                detail !== undefined && element('span', { class: 'offer-detail' }, detail),
            ),
        );
        made.addEventListener('click', () => this.take(at));
        return made;
    }

    private take(at: number): void {
        const item = this.items[at];
        this.close();
        if (item !== undefined && item.value !== this.value) {
            this.choose(item.value);
        }
    }

    private key(event: KeyboardEvent): void {
        const last = this.items.length - 1;
        const isOpen = !this.list.hidden;
        const [next, previous] = [Math.min(this.at + 1, last), Math.max(this.at - 1, 0)];
        const moves: Record<string, number> = { ArrowDown: next, ArrowUp: previous, Home: 0, End: last };
        const to = moves[event.key];
        if (to !== undefined) {
            isOpen ? this.mark(to) : this.open();
        } else if (isOpen && (event.key === 'Enter' || event.key === ' ')) {
            this.take(this.at);
        } else if (isOpen && event.key === 'Escape') {
            this.close();
        } else if (isOpen && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
            this.search(event.key);
        } else {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    }

    /** Moves to the next item that starts with the typed text. */
    private search(key: string): void {
        const now = Date.now();
        this.typed = { text: (now - this.typed.at < TYPED_MS ? this.typed.text : '') + key.toLowerCase(), at: now };
        const from = this.typed.text.length === 1 ? this.at + 1 : this.at;
        const order = this.items.map((_, at) => (from + at) % this.items.length);
        const found = order.find(at => this.items[at]?.label.toLowerCase().startsWith(this.typed.text));
        if (found !== undefined) {
            this.mark(found);
        }
    }

    private mark(at: number): void {
        this.options[this.at]?.setAttribute('aria-selected', 'false');
        this.at = at;
        const option = this.options[at];
        if (option !== undefined) {
            option.setAttribute('aria-selected', 'true');
            option.scrollIntoView({ block: 'nearest' });
            this.button.setAttribute('aria-activedescendant', option.id);
        }
    }
}
