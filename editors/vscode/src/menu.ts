/** What a click on the status bar offers, and the lists behind it. */

import { type QuickPickItem, QuickPickItemKind, commands, window } from 'vscode';
import type { Choice, UsageReport } from './protocol';
import { told } from './said';
import type { Turns } from './turns';

interface Entry extends QuickPickItem {
    run?: () => unknown;
}

export type Chosen = 'effort' | 'thinking' | 'model';

const LISTS: { key: Chosen; icon: string; label: string; placeHolder: string }[] = [
    { key: 'effort', icon: 'dashboard', label: 'Effort', placeHolder: 'Reasoning effort' },
    { key: 'thinking', icon: 'lightbulb', label: 'Thinking', placeHolder: 'How the model thinks' },
    { key: 'model', icon: 'chip', label: 'Model', placeHolder: 'The model of the next turn' },
];
const OTHER = '$(edit) Another model …';

/** `changed`: something has been chosen. */
export async function showMenu(turns: Turns, changed: () => void): Promise<void> {
    const quick = window.createQuickPick<Entry>();
    quick.title = 'thinklsp';
    quick.placeholder = 'What the next turn uses, and what is there';
    quick.busy = true;
    quick.items = entries(turns, changed, [], undefined);
    quick.onDidAccept(() => {
        const [chosen] = quick.selectedItems;
        quick.hide();
        chosen?.run?.();
    });
    quick.onDidHide(() => quick.dispose());
    quick.show();
    // What it takes a moment to know comes when it is known.
    const choices = await Promise.all(
        LISTS.map(list => turns.ask<Choice>(`thinklsp.${list.key}`).catch(() => undefined)),
    );
    const usage = await turns.ask<UsageReport>('thinklsp.usage').catch(() => undefined);
    const [active] = quick.activeItems;
    quick.items = entries(turns, changed, choices, usage);
    // The user may have gone to another line meanwhile.
    quick.activeItems = quick.items.filter(item => item.label === active?.label).slice(0, 1);
    quick.busy = false;
}

function entries(
    turns: Turns,
    changed: () => void,
    choices: (Choice | undefined)[],
    usage: UsageReport | undefined,
): Entry[] {
    const busy = turns.state.kind === 'thinking' || turns.state.kind === 'waiting';
    const stop: Entry = {
        label: '$(debug-stop) Stop',
        description: 'the newest turn',
        run: () => told(() => turns.ask('thinklsp.cancel')),
    };
    const wrong: Entry[] =
        turns.state.kind === 'error'
            ? [{ label: '$(error) What went wrong', detail: turns.state.sentence, run: command('thinklsp.ui.showLog') }]
            : [];
    return [
        ...(busy ? [stop] : []),
        ...wrong,
        { label: '$(comment-discussion) Open chat', run: command('thinklsp.ui.openChat') },
        { label: 'next turn', kind: QuickPickItemKind.Separator },
        ...LISTS.map((list, at) => ({
            label: `$(${list.icon}) ${list.label}`,
            description: described(choices[at]),
            run: () => choose(turns, list.key, changed),
        })),
        { label: 'more', kind: QuickPickItemKind.Separator },
        { label: '$(graph) Usage', description: spent(usage), run: command('thinklsp.ui.usage') },
        { label: '$(key) Set an API key …', run: command('thinklsp.ui.setKey') },
        { label: '$(gear) Settings', run: command('workbench.action.openSettings', '@ext:thinklsp.thinklsp') },
        { label: '$(pulse) Doctor', description: 'what would be used, and what is wrong', run: command('thinklsp.ui.doctor') },
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

function spent(usage: UsageReport | undefined): string {
    if (usage === undefined) {
        return '';
    }
    const tokens = (usage.today.inputTokens ?? 0) + (usage.today.outputTokens ?? 0);
    const cost = usage.today.costUsd === null ? '' : `, $${usage.today.costUsd.toFixed(2)}`;
    return `${tokens.toLocaleString('en')} tokens today${cost}`;
}

/** A list of what can be chosen; with a session for that one, else for everything from now on. */
export async function choose(turns: Turns, key: Chosen, changed: () => void, sessionId?: string): Promise<void> {
    const list = LISTS.find(one => one.key === key)!;
    const now = await told(() => turns.ask<Choice>(`thinklsp.${key}`, { sessionId }));
    if (now === undefined) {
        return;
    }
    const items: QuickPickItem[] = now.choices.map(value => ({
        label: value,
        description: value === now.value ? '$(check) now' : '',
    }));
    if (key === 'model') {
        items.push({ label: OTHER, alwaysShow: true });
    }
    const quick = window.createQuickPick();
    quick.title = `thinklsp: ${list.label.toLowerCase()}`;
    quick.placeholder = now.notice ?? list.placeHolder;
    quick.items = items;
    quick.activeItems = items.filter(item => item.label === now.value);
    const chosen = await new Promise<string | undefined>(resolve => {
        quick.onDidAccept(() => {
            resolve(quick.selectedItems[0]?.label);
            quick.hide();
        });
        quick.onDidHide(() => {
            resolve(undefined);
            quick.dispose();
        });
        quick.show();
    });
    const value = chosen === OTHER ? await window.showInputBox({ title: 'thinklsp: model', prompt: 'Model id' }) : chosen;
    if (!value) {
        return;
    }
    const made = await told(() => turns.ask<Choice>(`thinklsp.${key}`, { value, sessionId }));
    if (made?.notice) {
        void window.showInformationMessage(made.notice);
    }
    changed();
}
