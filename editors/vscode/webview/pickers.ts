/** The menus for mode, model, effort and thinking of the next turn, with the server's values. */

import { modelFacts, providerName } from '../src/chat/models';
import { CHOICES, MODES, type Choice, type ChoiceName, type Mode, type Model } from '../src/chat/messages';
import { element } from './dom';
import { Menu, type MenuItem } from './menu';

export type Choices = Readonly<Record<ChoiceName, Choice>> & { readonly models: readonly Model[]; readonly offline: boolean };

const MODE_ITEMS: Record<Mode, Omit<MenuItem, 'value'>> = {
    agent: { label: 'Agent', detail: 'Reads and changes your files' },
    ask: { label: 'Ask', detail: 'Answers and changes nothing' },
    plan: { label: 'Plan', detail: 'Plans and changes nothing' },
};
const LABELS: Record<ChoiceName, string> = { effort: 'Effort', thinking: 'Thinking', model: 'Model' };
const SET_KEY = 'set-key ';

export class Pickers {
    /** The menus before the send button, and those below the box. */
    readonly bar: HTMLElement[];
    readonly under: HTMLElement[];
    /** The lists of the menus, which open above the box. */
    readonly lists: HTMLElement[];
    private readonly mode: Menu;
    private readonly menus: Record<ChoiceName, Menu>;

    constructor(
        private readonly choose: (key: ChoiceName, value: string) => void,
        private readonly setKey: () => void,
        changed: () => void,
    ) {
        this.mode = new Menu('Mode', value => {
            this.chosenMode = MODES.find(mode => mode === value) ?? 'agent';
            changed();
        });
        this.chosenMode = 'agent';
        const made = CHOICES.map(key => [key, new Menu(LABELS[key], value => this.take(key, value))] as const);
        this.menus = Object.fromEntries(made) as Record<ChoiceName, Menu>;
        const { model, effort, thinking } = this.menus;
        this.bar = [this.mode.button, model.button];
        this.under = [named('Effort', effort), named('Thinking', thinking)];
        this.lists = [this.mode, model, effort, thinking].map(menu => menu.list);
    }

    get chosenMode(): Mode {
        return MODES.find(mode => mode === this.mode.chosen) ?? 'agent';
    }

    set chosenMode(mode: Mode) {
        this.mode.show(MODES.map(value => ({ value, ...MODE_ITEMS[value] })), mode);
    }

    show(choices: Choices): void {
        for (const key of ['effort', 'thinking'] as const) {
            const { value, effective, choices: values } = choices[key];
            const all = value === null || values.includes(value) ? values : [value, ...values];
            const isOther = (one: string) => one === value && effective !== null && effective !== one;
            const items = all.map(one => ({ value: one, label: one, ...(isOther(one) ? { detail: `${effective} is used` } : {}) }));
            this.menus[key].show(items, value ?? '', value ?? effective ?? 'default');
        }
        this.showModels(choices);
    }

    private showModels({ model: { value, effective, choices }, models, offline }: Choices): void {
        const known = new Map(models.map(model => [model.id, model]));
        const named = offline ? providerName('simulator') : effective === null ? 'no model' : (known.get(effective)?.title ?? effective);
        const others = choices.filter(one => !known.has(one)).map(one => ({
            value: one,
            label: one,
            ...(one === 'auto' ? { detail: effective === null ? 'The best model that you have a key for' : `${named} now` } : {}),
        }));
        const own = models.filter(model => model.hasKey).map(model => ({
            value: model.id,
            label: model.title,
            detail: modelFacts(model),
            group: providerName(model.provider),
        }));
        const locked = [...new Set(models.filter(model => !model.hasKey).map(model => model.provider))].map(provider => ({
            value: SET_KEY + provider,
            label: 'Set an API key…',
            group: `${providerName(provider)} (no key)`,
        }));
        const current = value ?? effective ?? '';
        const isAuto = value === 'auto' && effective !== null;
        const label = offline ? named : isAuto ? `${named} (auto)` : (known.get(current)?.title ?? (current || named));
        this.menus.model.show([...others, ...own, ...locked], current, label);
    }

    private take(key: ChoiceName, value: string): void {
        value.startsWith(SET_KEY) ? this.setKey() : this.choose(key, value);
    }
}

function named(name: string, menu: Menu): HTMLElement {
    return element('span', { class: 'named-picker' }, element('span', { 'aria-hidden': 'true' }, name), menu.button);
}
