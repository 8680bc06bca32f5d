/** Code actions: their commands survive the editor, an instruction is asked for, and what runs is shown where it works. */

import { type CodeAction, type Command, type Disposable, commands, window } from 'vscode';
import type { CodeActionMiddleware, ExecuteCommandMiddleware } from 'vscode-languageclient/node';
import { choose } from './menu';
import type { Outcomes } from './outcomes';
import type { ActionArgument, Applied } from './protocol';
import { told } from './said';
import type { Turns } from './turns';
import type { WorkingOn } from './working';

const PREFIX = 'thinklsp.ui.run.';
// Commands of menus that have been closed; more than one editor shows at a time.
const KEPT = 500;

export class Actions implements Disposable {
    private readonly runs = new Map<string, Disposable>();
    private count = 0;

    constructor(
        private readonly turns: Turns,
        private readonly working: WorkingOn,
        private readonly outcomes: Outcomes,
        private readonly chosen: () => void,
    ) {}

    readonly middleware: CodeActionMiddleware & ExecuteCommandMiddleware = {
        provideCodeActions: async (document, range, context, token, next) => {
            const found = await next(document, range, context, token);
            found?.forEach(action => this.bind(action));
            return found;
        },
        executeCommand: (command, given) => told(() => this.run(command, (given[0] ?? {}) as object)),
    };

    /** A command of the server, as the user has asked for it. */
    private async run(command: string, argument: object): Promise<unknown> {
        switch (command) {
            case 'thinklsp.action':
                return this.act(argument);
            case 'thinklsp.effort':
            case 'thinklsp.thinking':
            case 'thinklsp.model': {
                const { value, sessionId } = argument as { value?: string; sessionId?: string };
                if (value !== undefined) {
                    return this.turns.ask(command, argument);
                }
                const key = command.slice('thinklsp.'.length) as 'effort' | 'thinking' | 'model';
                return choose(this.turns, key, this.chosen, sessionId);
            }
            case 'thinklsp.apply':
            case 'thinklsp.undo': {
                const applied = await this.turns.ask<Applied>(command, argument);
                void this.outcomes.tellApplied(applied);
                return applied;
            }
            default:
                return this.turns.ask(command, argument);
        }
    }

    private async act(argument: ActionArgument): Promise<void> {
        if (argument.name === 'edit' && !argument.instruction) {
            const instruction = await window.showInputBox({
                title: 'thinklsp: edit the selection',
                prompt: 'What should change?',
                placeHolder: 'for example: handle an empty list',
                ignoreFocusOut: true,
            });
            if (!instruction?.trim()) {
                return;
            }
            argument = { ...argument, instruction };
        }
        const running = await this.turns.launch('thinklsp.action', argument);
        if (running === undefined) {
            return;
        }
        this.working.on(argument, running);
        // The server says why a turn failed.
        running.result.then(
            result => this.outcomes.tell(result, argument.uri),
            () => undefined,
        );
    }

    /** VS Code from 1.134 may drop an action whose command has arguments; so each gets a command of its own. */
    private bind(action: Command | CodeAction): void {
        const command = typeof action.command === 'string' ? (action as Command) : (action as CodeAction).command;
        if (!command?.arguments?.length) {
            return;
        }
        const { command: id, arguments: given } = command;
        const fresh = `${PREFIX}${this.count++}`;
        this.runs.set(
            fresh,
            commands.registerCommand(fresh, () => commands.executeCommand(id, ...given)),
        );
        command.command = fresh;
        delete command.arguments;
        for (const [oldest, registered] of this.runs) {
            if (this.runs.size <= KEPT) {
                break;
            }
            registered.dispose();
            this.runs.delete(oldest);
        }
    }

    dispose(): void {
        this.runs.forEach(one => one.dispose());
    }
}
