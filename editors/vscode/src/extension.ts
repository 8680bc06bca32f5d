/** Puts the parts together. Nothing here waits: the server starts while the editor goes on. */

import type { ExtensionContext } from 'vscode';
import { ChatView } from './chat/view';
import { Server } from './server';
import { Turns } from './turns';

export function activate(context: ExtensionContext): void {
    const server = new Server(context);
    const turns = new Turns(() => server.ready());
    server.watchedBy(turns);
    context.subscriptions.push(server, turns, new ChatView(context, turns));
    void server.ready().catch(() => undefined);
}
