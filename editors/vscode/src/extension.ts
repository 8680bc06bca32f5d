/** Creates and connects the parts of the extension. Nothing here waits for the server to start. */

import { type ExtensionContext, commands } from 'vscode';
import { Actions } from './actions';
import { CHAT_VIEW, ChatView } from './chat/view';
import { FirstRun } from './first-run';
import { showMenu } from './menu';
import { Outcomes } from './outcomes';
import { Pages } from './pages';
import type { DoctorReport, McpReport, UsageReport } from './protocol';
import { Questions } from './questions';
import { doctorPage, mcpPage, usagePage } from './reports';
import { Changes } from './review/changes';
import { Marks } from './review/marks';
import { Review } from './review/review';
import { tell, told } from './said';
import { Server } from './server';
import { MENU, Status } from './status';
import { openTour, openTourFile, showTour } from './tour';
import { Turns } from './turns';
import { openUserFile } from './user-file';
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
    const changes = new Changes(connect);
    const questions = new Questions();
    const actions = new Actions(
        turns,
        working,
        outcomes,
        changed,
        uri => changes.in(uri).length > 0,
        (argument, action) => void chat.answer(argument, action),
        () => chat.isShown,
    );
    const review = new Review(changes, pages, questions, turns, connect);
    const running = new Server(
        context,
        turns,
        {
            ...actions.middleware,
            handleWorkDoneProgress: turns.show,
        },
        {
            ask: (params, token) => review.ask(params, token),
            apply: (params, next) => changes.apply(params, next),
        },
        {
            show: ({ type, message }) => void tell(message, undefined, type),
            ask: (question, token) => questions.askForServer(question, token),
            drop: () => questions.drop(),
        },
    );
    server = running;

    const ui: Record<string, (...given: never[]) => unknown> = {
        [MENU]: () => questions.reopen() || showMenu(turns, changed, status.wrong),
        'thinklsp.ui.openChat': () => commands.executeCommand(`${CHAT_VIEW}.focus`),
        'thinklsp.ui.showLog': () => running.showLog(),
        'thinklsp.ui.install': () => running.install(),
        'thinklsp.ui.removeServer': () => running.removeOwn(),
        'thinklsp.ui.choose': () => running.choose(),
        'thinklsp.ui.restart': () => running.restart(),
        'thinklsp.ui.doctor': () =>
            told(async () => pages.read('doctor.md', doctorPage(await turns.ask<DoctorReport>('thinklsp.doctor')))),
        'thinklsp.ui.mcp': () => told(async () => pages.read('mcp.md', mcpPage(await turns.ask<McpReport>('thinklsp.mcp')))),
        'thinklsp.ui.openConfig': (message?: string) => told(() => openUserFile(turns, message)),
        'thinklsp.ui.usage': () =>
            told(async () => pages.read('usage.md', usagePage(await turns.ask<UsageReport>('thinklsp.usage')))),
        'thinklsp.ui.edit': () => told(() => actions.editHere()),
        'thinklsp.ui.openTour': () => told(() => openTour(context)),
        'thinklsp.ui.openTourFile': (name: string) => told(() => openTourFile(context, name)),
    };
    const registered = Object.entries(ui).map(([id, run]) => commands.registerCommand(id, run));
    context.subscriptions.push(...registered, running, actions, working, status, pages, turns, changes, review);
    context.subscriptions.push(new Marks(changes));
    context.subscriptions.push(questions, new FirstRun(context, turns, () => running.restart()));
    const chat = new ChatView(context, turns, outcomes, changes, pages, questions, connect, changed);
    context.subscriptions.push(chat);
    // The server's own message tells the user why it could not start.
    connect().catch(() => undefined);
    void showTour(context);
}

export async function deactivate(): Promise<void> {
    await server?.stop();
}
