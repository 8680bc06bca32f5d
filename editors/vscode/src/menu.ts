/** The menu of the status bar item, and the lists that it opens. */

import { type QuickPickItem, QuickPickItemKind, commands, window, workspace } from 'vscode';
import { cost, used } from './chat/figures';
import type { ChoiceName } from './chat/messages';
import { modelFacts, providerName } from './chat/models';
import { WAYS, isOffline } from './first-run';
import type { Choice, Model, UsageReport } from './protocol';
import { explain, inform, told } from './said';
import { isTour } from './tour';
import type { Turns } from './turns';

interface Entry extends QuickPickItem {
    run?: () => unknown;
}

const LISTS: { key: ChoiceName; icon: string; label: string; placeHolder: string }[] = [
    { key: 'effort', icon: 'dashboard', label: 'Effort', placeHolder: 'Reasoning effort' },
    { key: 'thinking', icon: 'lightbulb', label: 'Thinking', placeHolder: 'Thinking mode' },
    { key: 'model', icon: 'chip', label: 'Model', placeHolder: 'Model for the next turn' },
];
const OTHER = '$(edit) Another model …';
const CURRENT = '$(check) current';
const OFFLINE = 'offline: scripted answers of the simulator';

interface Value extends QuickPickItem {
    /** undefined for another model, whose id the user types. */
    value?: string;
    /** Set if the model's provider has no key. */
    isLocked?: boolean;
}

/** Shows the menu. Calls `changed` after the user chose a value. `wrong` is the last error message. */
export async function showMenu(turns: Turns, changed: () => void, wrong: string | undefined): Promise<void> {
    const quick = window.createQuickPick<Entry>();
    quick.title = 'thinklsp';
    quick.placeholder = 'Settings for the next turn, and commands';
    quick.busy = true;
    const head = headOf(turns, wrong);
    quick.items = [...head, ...entries(turns, changed, [], undefined)];
    quick.onDidAccept(() => {
        const [chosen] = quick.selectedItems;
        quick.hide();
        chosen?.run?.();
    });
    quick.onDidHide(() => quick.dispose());
    quick.show();
    // The current values need requests to the server, so they are filled in later.
    const choices = await Promise.all(
        LISTS.map(list => turns.ask<Choice>(`thinklsp.${list.key}`).catch(() => undefined)),
    );
    const usage = await turns.ask<UsageReport>('thinklsp.usage').catch(() => undefined);
    const [active] = quick.activeItems;
    quick.items = [...head, ...entries(turns, changed, choices, usage)];
    // The user may have moved to another entry in the meantime.
    quick.activeItems = quick.items.filter(item => item.label === active?.label).slice(0, 1);
    quick.busy = false;
}

/** Describes the model and the effort of the next turn, and what the last one cost; without a model call. */
export async function describeNextTurn(turns: Turns): Promise<string> {
    const [model, effort] = await Promise.all(
        ['thinklsp.model', 'thinklsp.effort'].map(command => turns.ask<Choice>(command).catch(() => undefined)),
    );
    const usage = await turns.ask<UsageReport>('thinklsp.usage').catch(() => undefined);
    const last = usage?.byTurn.at(-1)?.costUsd ?? undefined;
    const facts = [isOffline(model) ? 'offline' : model?.effective, effort && `effort ${effort.value}`, last && `the last turn cost ${cost(last)}`];
    return facts.filter(fact => fact).join(' · ');
}

function headOf(turns: Turns, wrong: string | undefined): Entry[] {
    const { kind } = turns.state;
    const found: Entry[] = [];
    if (kind === 'thinking' || kind === 'waiting') {
        const run = () => told(() => turns.ask('thinklsp.cancel'));
        found.push({ label: '$(debug-stop) Stop', description: 'the newest turn', run });
    }
    if (wrong !== undefined) {
        found.push({ label: '$(error) What went wrong', detail: wrong, run: () => explain(wrong) });
    }
    return found;
}

function entries(
    turns: Turns,
    changed: () => void,
    choices: (Choice | undefined)[],
    usage: UsageReport | undefined,
): Entry[] {
    return [
        { label: '$(comment-discussion) Open chat', run: command('thinklsp.ui.openChat') },
        { label: 'next turn', kind: QuickPickItemKind.Separator },
        ...LISTS.map((list, at) => ({
            label: `$(${list.icon}) ${list.label}`,
            description: list.key === 'model' && isOffline(choices[at]) ? OFFLINE : described(choices[at]),
            run: () => choose(turns, list.key, changed),
        })),
        { label: 'where the model runs', kind: QuickPickItemKind.Separator },
        ...WAYS.map(({ label, detail, command: id }) => ({ label, description: detail, run: command(id) })),
        { label: 'more', kind: QuickPickItemKind.Separator },
        { label: '$(graph) Usage', description: usage && `today: ${used(usage.today) || 'nothing yet'}`, run: command('thinklsp.ui.usage') },
        { label: '$(gear) Settings', run: command('workbench.action.openSettings', '@ext:thinklsp.thinklsp') },
        { label: '$(go-to-file) Open config.toml', run: command('thinklsp.ui.openConfig') },
        { label: '$(pulse) Doctor', description: 'check the configuration', run: command('thinklsp.ui.doctor') },
        { label: '$(plug) MCP servers', description: 'tools of other programs', run: command('thinklsp.ui.mcp') },
        { label: '$(output) Log', run: command('thinklsp.ui.showLog') },
        { label: '$(debug-restart) Restart the server', run: command('thinklsp.ui.restart') },
    ];
}

function command(id: string, ...given: unknown[]): () => unknown {
    return () => commands.executeCommand(id, ...given);
}

function described(choice: Choice | undefined): string {
    if (choice === undefined) {
        return '';
    }
    const { value, effective } = choice;
    return value === effective || effective === null ? (value ?? '') : [value, effective].filter(Boolean).join(' → ');
}

/** Lets the user choose a value for a session or, without one, for all later turns. */
export async function choose(turns: Turns, key: ChoiceName, changed: () => void, sessionId?: string): Promise<void> {
    const list = LISTS.find(one => one.key === key)!;
    const now = await told(() => turns.ask<Choice>(`thinklsp.${key}`, { sessionId }));
    if (now === undefined) {
        return;
    }
    const items = key === 'model' && now.models ? modelItems(now) : now.choices.map(value => valueItem(value, now));
    if (key === 'model') {
        items.push({ label: OTHER, alwaysShow: true });
    }
    const quick = window.createQuickPick<Value>();
    quick.title = `thinklsp: ${list.label.toLowerCase()}`;
    quick.placeholder = now.notice ?? list.placeHolder;
    quick.matchOnDescription = true;
    quick.matchOnDetail = true;
    quick.items = items;
    quick.activeItems = items.filter(item => item.value !== undefined && item.value === now.value);
    const chosen = await new Promise<Value | undefined>(resolve => {
        quick.onDidAccept(() => {
            resolve(quick.selectedItems[0]);
            quick.hide();
        });
        quick.onDidHide(() => {
            resolve(undefined);
            quick.dispose();
        });
        quick.show();
    });
    if (chosen?.isLocked) {
        return commands.executeCommand('thinklsp.ui.setKey');
    }
    const isOther = chosen?.label === OTHER;
    const value = isOther ? await window.showInputBox({ title: 'thinklsp: model', prompt: 'Model id' }) : chosen?.value;
    if (!value) {
        return;
    }
    const made = await told(() => decide(turns, key, value, sessionId));
    if (made?.notice) {
        void inform(made.notice);
    }
    changed();
}

/** Sets a value for a session or, without one, in the user's or the workspace's settings, so that it outlives the window. */
export async function decide(turns: Turns, key: ChoiceName, value: string, sessionId?: string): Promise<Choice> {
    const answer = await turns.ask<Choice>(`thinklsp.${key}`, { value, sessionId });
    if (sessionId === undefined && !isTour()) {
        const settings = workspace.getConfiguration('thinklsp');
        const write = (name: string, to: string) => settings.update(name, to, settings.inspect(name)?.workspaceValue === undefined);
        await write(key === 'thinking' ? 'thinking.mode' : key, value);
        if (key === 'effort' && settings.get('thinking.mode') === 'ultra') {
            await write('thinking.mode', 'auto');
        }
    }
    return answer;
}

function valueItem(value: string, now: Choice): Value {
    const isNow = value === now.value;
    // `auto` is a choice of the server, which tells what it has chosen.
    const meant = isNow && value !== now.effective ? (titleOf(now.effective, now) ?? '') : '';
    return { value, label: value, description: [isNow ? CURRENT : '', meant].filter(Boolean).join(' · ') };
}

function titleOf(id: string | null, now: Choice): string | null {
    return now.models?.find(model => model.id === id)?.title ?? id;
}

/** Returns the models by provider, those with a key first. */
function modelItems(now: Choice): Value[] {
    const models = now.models ?? [];
    const others = now.choices.filter(value => !models.some(model => model.id === value)).map(value => valueItem(value, now));
    const sorted = [...models].sort((one, other) => Number(other.hasKey) - Number(one.hasKey));
    const providers = [...new Set(sorted.map(model => model.provider))];
    const grouped = providers.flatMap(provider => {
        const own = models.filter(model => model.provider === provider);
        const label = `${providerName(provider)}${own[0]?.hasKey ? '' : ' (no key)'}`;
        return [{ label, kind: QuickPickItemKind.Separator }, ...own.map(model => modelItem(model, now))];
    });
    return [...others, ...grouped];
}

function modelItem(model: Model, now: Choice): Value {
    const { id, title, hasKey } = model;
    const facts = [id === now.value ? CURRENT : '', modelFacts(model)];
    const label = hasKey ? title : `$(lock) ${title}`;
    return { value: id, label, description: facts.filter(Boolean).join(' · '), isLocked: !hasKey };
}
