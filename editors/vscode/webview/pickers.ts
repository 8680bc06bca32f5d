/** How the next turn runs: mode, model, effort and thinking, as the server offers them. */

import { CHOICES, MODES, type Choice, type ChoiceName, type Mode } from '../src/chat/messages';
import { element } from './dom';

export type Choices = Readonly<Record<ChoiceName, Choice>>;

const MODE_TITLES: Record<Mode, string> = { agent: 'Agent', ask: 'Ask', plan: 'Plan' };
const LABELS: Record<ChoiceName, string> = { effort: 'Effort', thinking: 'Thinking', model: 'Model' };

export class Pickers {
    readonly mode: HTMLElement;
    readonly model: HTMLElement;
    readonly effort: HTMLElement;
    readonly thinking: HTMLElement;
    private readonly modes = element('select', { 'aria-label': 'Mode' });
    private readonly selects: Record<ChoiceName, HTMLSelectElement>;
    private choices: Choices | undefined;

    constructor(choose: (key: ChoiceName, value: string) => void, changed: () => void) {
        this.modes.append(...MODES.map(mode => element('option', { value: mode }, MODE_TITLES[mode])));
        this.modes.addEventListener('change', changed);
        const made = CHOICES.map(key => {
            const select = element('select', { 'aria-label': LABELS[key], title: LABELS[key] });
            select.addEventListener('change', () => {
                choose(key, select.value);
                // What holds is what the server says then.
                this.reset(key);
            });
            return [key, select] as const;
        });
        this.selects = Object.fromEntries(made) as Record<ChoiceName, HTMLSelectElement>;
        this.mode = element('span', { class: 'picker' }, this.modes);
        this.model = element('span', { class: 'picker' }, this.selects.model);
        this.effort = named('Effort', this.selects.effort);
        this.thinking = named('Thinking', this.selects.thinking);
    }

    get chosenMode(): Mode {
        return MODES.find(mode => mode === this.modes.value) ?? 'agent';
    }

    set chosenMode(mode: Mode) {
        this.modes.value = mode;
    }

    show(choices: Choices): void {
        this.choices = choices;
        CHOICES.forEach(key => this.reset(key));
    }

    private reset(key: ChoiceName): void {
        const choice = this.choices?.[key];
        const select = this.selects[key];
        if (choice === undefined) {
            return;
        }
        const current = choice.value ?? '';
        const values = choice.choices.includes(current) ? choice.choices : [current, ...choice.choices];
        const isAuto = key === 'model' && current === 'auto' && choice.effective !== null;
        const label = (value: string) => (isAuto && value === current ? `${choice.effective} (auto)` : value || choice.effective || 'no model');
        select.replaceChildren(...values.map(value => element('option', { value }, label(value))));
        select.value = current;
        const used = choice.effective === null || choice.effective === current ? '' : `, ${choice.effective} is used`;
        select.title = `${LABELS[key]}: ${current || 'the default'}${used}`;
        select.disabled = choice.choices.length === 0;
    }
}

function named(name: string, select: HTMLSelectElement): HTMLElement {
    return element('label', { class: 'picker' }, element('span', { class: 'picker-name' }, name), select);
}
