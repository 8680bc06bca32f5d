/** Puts the parts together. Nothing here waits: the server starts while the editor goes on. */

import { type ExtensionContext, commands } from 'vscode';
import { Actions } from './actions';
import { CHAT_VIEW, ChatView } from './chat/view';
import { setKey } from './keys';
import { showMenu } from './menu';
import { Outcomes } from './outcomes';
import { Pages } from './pages';
import type { UsageReport } from './protocol';
import { doctorPage, usagePage } from './reports';
import { told } from './said';
import { Server } from './server';
import { MENU, Status } from './status';
import { Turns } from './turns';
import { WorkingOn } from './working';

let server: Server | undefined;

export function activate(context: ExtensionContext): void {
    const connect = () => running.ready();
    const turns = new Turns(connect);
    const pages = new Pages();
    const status = new Status(turns);
    const working = new WorkingOn(turns);
    const changed = () => void status.look();
    const outcomes = new Outcomes(turns, pages, connect);
    const actions = new Actions(turns, working, outcomes, changed);
    const running = new Server(context, turns, {
        ...actions.middleware,
        handleWorkDoneProgress: (token, value, next) => {
            turns.show(token, value);
            next(token, value);
        },
    });
    server = running;

    const ui: Record<string, (...given: never[]) => unknown> = {
        [MENU]: () => showMenu(turns, changed),
        'thinklsp.ui.openChat': () => commands.executeCommand(`${CHAT_VIEW}.focus`),
        'thinklsp.ui.showLog': () => running.showLog(),
        'thinklsp.ui.install': () => running.install(),
        'thinklsp.ui.choose': () => running.choose(),
        'thinklsp.ui.restart': () => running.restart(),
        'thinklsp.ui.doctor': () =>
            told(async () => pages.read('doctor.md', doctorPage(await turns.ask('thinklsp.doctor')))),
        'thinklsp.ui.usage': () =>
            told(async () => pages.read('usage.md', usagePage(await turns.ask<UsageReport>('thinklsp.usage')))),
        'thinklsp.ui.setKey': async () => {
            if (await setKey(context)) {
                await running.restart();
            }
        },
    };
    const registered = Object.entries(ui).map(([id, run]) => commands.registerCommand(id, run));
    context.subscriptions.push(...registered, running, actions, working, status, pages, turns);
    context.subscriptions.push(new ChatView(context, turns, outcomes, connect, changed));
    // Whoever cannot be served is told by the server's own message.
    connect().catch(() => undefined);
}

export async function deactivate(): Promise<void> {
    await server?.stop();
}
