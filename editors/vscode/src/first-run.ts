/** The first run: three ways to a model for a user who has no API key yet. */

import {
    ConfigurationTarget,
    type Disposable,
    type ExtensionContext,
    ProgressLocation,
    type QuickPickItem,
    commands,
    window,
    workspace,
} from 'vscode';
import { KEY_PAGES, type KeyProvider, chooseProvider, setKey } from './keys';
import { type LocalModel, addLocalServer, findLocalModels } from './local-servers';
import type { Choice, DoctorReport } from './protocol';
import { fail, inform, isNoKey, tell, told, warn } from './said';
import { isTour } from './tour';
import type { Turns } from './turns';

export const FIRST_RUN = 'thinklsp.ui.firstRun';
const PROVIDER = 'provider';
const OFFLINE = 'simulator';
const AGAIN = 'Try again';
const MAKE_KEY = 'Where to create an API key';
const OPEN_FOLDER = 'Open Folder…';

/** The three ways to a model, in every list that offers them. */
export const WAYS: readonly (QuickPickItem & { command: string })[] = [
    {
        label: '$(key) Set an API key',
        detail: 'Anthropic, OpenAI, Google or a compatible server. The key is tested at once.',
        command: 'thinklsp.ui.setKey',
    },
    {
        label: '$(server) Use a local server',
        detail: 'Ollama, LM Studio, vLLM or llama.cpp on this machine',
        command: 'thinklsp.ui.useLocalServer',
    },
    {
        label: '$(debug-disconnect) Try offline',
        detail: 'Scripted answers of the simulator: no key, no network, no cost',
        command: 'thinklsp.ui.tryOffline',
    },
];

/** Whether the simulator is chosen: in the settings, or elsewhere according to the answer of `thinklsp.model`. */
export function isOffline(model?: Choice): boolean {
    return isTour() || selected() === OFFLINE || model?.provider === OFFLINE;
}

/** Whether a turn can run; if not, offers the three ways to a model first. */
export async function ensureModel(turns: Turns): Promise<boolean> {
    const { effective, notice } = await turns.ask<Choice>('thinklsp.model');
    return effective !== null || !isNoKey(notice ?? '') || (await commands.executeCommand(FIRST_RUN)) === true;
}

/** The commands of the three ways. Each resolves to true if a turn can run now. */
export class FirstRun implements Disposable {
    private readonly registered: Disposable[];

    constructor(
        private readonly context: ExtensionContext,
        private readonly turns: Turns,
        /** Starts the server again, with the stored keys, the settings and the user's file. */
        private readonly restart: () => Promise<void>,
    ) {
        const run: Record<string, () => Promise<boolean>> = {
            [FIRST_RUN]: () => this.offer(),
            'thinklsp.ui.setKey': () => this.setKey(),
            'thinklsp.ui.useLocalServer': () => this.useLocalServer(),
            'thinklsp.ui.tryOffline': () => this.tryOffline(),
        };
        this.registered = Object.entries(run).map(([id, way]) =>
            commands.registerCommand(id, () => told(isTour() ? leaveTour : way)),
        );
    }

    dispose(): void {
        this.registered.forEach(one => one.dispose());
    }

    private async offer(): Promise<boolean> {
        const way = await window.showQuickPick(WAYS, {
            title: 'thinklsp: choose a model',
            placeHolder: 'thinklsp has no model yet. Choose how to get one.',
            ignoreFocusOut: true,
        });
        return way !== undefined && (await commands.executeCommand(way.command)) === true;
    }

    private async setKey(again?: KeyProvider): Promise<boolean> {
        const provider = again ?? (await chooseProvider(this.context));
        const change = provider && (await setKey(this.context, provider));
        if (provider === undefined || change === undefined) {
            return false;
        }
        const { id, label } = provider;
        if (change === 'deleted') {
            if (selected() === id) {
                await select(undefined);
            }
            await this.restart();
            void inform(`The key for ${label} was deleted.`);
            return false;
        }
        await select(id);
        await this.restart();
        const page = KEY_PAGES[label];
        return this.test(`The key for ${label}`, page === undefined ? [] : [MAKE_KEY], async chosen => {
            if (chosen === MAKE_KEY) {
                await commands.executeCommand('vscode.open', page);
            }
            return this.setKey(provider);
        });
    }

    private async useLocalServer(): Promise<boolean> {
        const models = await window.withProgress(
            { location: ProgressLocation.Window, title: 'thinklsp: looking for local servers' },
            findLocalModels,
        );
        if (models.length === 0) {
            const none =
                'No server with a model answers on 127.0.0.1, ports 11434, 1234, 8000 and 8080. Start one, for example with `ollama serve`.';
            return (await warn(none, AGAIN)) === AGAIN && this.useLocalServer();
        }
        const chosen = await window.showQuickPick<LocalModel>(models, {
            title: 'thinklsp: use a local server',
            placeHolder: 'Model for the next turns',
            ignoreFocusOut: true,
        });
        const { settings, problems } = await this.turns.ask<DoctorReport>('thinklsp.doctor');
        if (settings === null) {
            void tell(problems[0] ?? 'The settings cannot be read.');
            return false;
        }
        if (chosen === undefined || !(await addLocalServer(chosen.baseUrl, settings.file))) {
            return false;
        }
        await select('openai-compatible', chosen.label);
        await this.restart();
        return this.test(`${chosen.label} at ${chosen.baseUrl}`, [], () => this.useLocalServer());
    }

    private async tryOffline(): Promise<boolean> {
        await select(OFFLINE);
        await this.restart();
        void this.offerTour();
        return true;
    }

    private async offerTour(): Promise<void> {
        const tour = 'Take the tour';
        if ((await inform('thinklsp is offline: the simulator gives scripted answers. A tour shows what thinklsp can do.', tour)) === tour) {
            await commands.executeCommand('thinklsp.ui.openTour');
        }
    }

    /** Tests the new model with the doctor, which calls no model, and tells the outcome. `help` runs for a button. */
    private async test(what: string, more: string[], help: (chosen: string) => Promise<boolean>): Promise<boolean> {
        const report = await this.turns.ask<DoctorReport>('thinklsp.doctor');
        if (report.canRun) {
            void inform(`${what} works. The next turn uses ${report.model?.id ?? 'its model'}.`);
            return true;
        }
        const problem = report.problems.at(-1) ?? 'The doctor has the details.';
        if (report.settings === null) {
            void tell(problem);
            return false;
        }
        const chosen = await fail(`${what} does not work. ${problem}`, AGAIN, ...more);
        return chosen !== undefined && help(chosen);
    }
}

function selected(): string {
    return workspace.getConfiguration('thinklsp').get(PROVIDER, 'auto');
}

/** Selects a provider for all later turns. A model that was chosen for another provider is dropped. */
async function select(provider: string | undefined, model?: string): Promise<void> {
    const settings = workspace.getConfiguration('thinklsp');
    if (model !== undefined || !['auto', provider].includes(selected())) {
        await settings.update('model', model, ConfigurationTarget.Global);
    }
    await settings.update(PROVIDER, provider, ConfigurationTarget.Global);
}

/** Tells why nothing can be chosen in the window of the tour. */
async function leaveTour(): Promise<boolean> {
    if ((await inform('This window plays the offline tour. Open your own folder to choose a model.', OPEN_FOLDER)) === OPEN_FOLDER) {
        await commands.executeCommand('vscode.openFolder');
    }
    return false;
}
