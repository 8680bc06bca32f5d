/** Code actions: registers their commands, asks for instructions, and marks the lines that a running action works on. */

import { type CodeAction, type Command, type Disposable, type Uri, commands, window } from 'vscode';
import type { CodeActionMiddleware, CodeLensMiddleware, ExecuteCommandMiddleware } from 'vscode-languageclient/node';
import type { ChoiceName } from './chat/messages';
import { ensureModel } from './first-run';
import { choose, describeNextTurn } from './menu';
import type { Outcomes } from './outcomes';
import type { ActionArgument, Applied } from './protocol';
import { explain, inform, mute, told } from './said';
import { tickTour } from './tour';
import type { Running, Turns } from './turns';
import type { WorkingOn } from './working';

/** Actions that only answer. The chat view shows their answers. */
const ANSWERING: ReadonlySet<string> = new Set(['explain', 'review', 'ask']);
const QUESTION = 'What should change?';
const PREFIX = 'thinklsp.ui.run.';
// Commands of closed menus stay registered for a while, because several editors can show menus at a time.
const KEPT = 500;

export class Actions implements Disposable {
    private readonly runs = new Map<string, Disposable>();
    private count = 0;

    constructor(
        private readonly turns: Turns,
        private readonly working: WorkingOn,
        private readonly outcomes: Outcomes,
        private readonly chosen: () => void,
        /** Returns whether a document has changes that the user has not decided on. */
        private readonly isMarked: (uri: Uri) => boolean,
        /** Shows the running turn of an action in the chat view. */
        private readonly answer: (argument: ActionArgument, running: Running) => void,
        /** Returns whether the user sees the chat view. */
        private readonly isChatShown: () => boolean,
    ) {}

    readonly middleware: CodeActionMiddleware & CodeLensMiddleware & ExecuteCommandMiddleware = {
        provideCodeActions: async (document, range, context, token, next) => {
            const found = await next(document, range, context, token);
            found?.forEach(action => this.bind(action));
            return found;
        },
        provideCodeLenses: async (document, token, next) => {
            const lenses = await next(document, token);
            // The lenses of the marks undo single changes; one more `undo` beside them would be confusing.
            return this.isMarked(document.uri) ? lenses?.filter(lens => lens.command?.command !== 'thinklsp.undo') : lenses;
        },
        executeCommand: (command, given) => told(() => this.run(command, (given[0] ?? {}) as object)),
    };

    /** Asks for an instruction and edits the selection or, at a bare cursor, the definition or line that the server finds. */
    async editHere(): Promise<void> {
        const editor = window.activeTextEditor;
        if (editor === undefined) {
            void inform('Open a file to edit it with thinklsp.');
            return;
        }
        const { document, selection } = editor;
        const { start, end } = selection;
        return this.act({ name: 'edit', uri: document.uri.toString(), range: { start, end }, version: document.version });
    }

    /** Runs a command of the server that the user chose. */
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
                const key = command.slice('thinklsp.'.length) as ChoiceName;
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

    private askForInstruction(place: string): Promise<string | undefined> {
        const box = window.createInputBox();
        box.title = `thinklsp: edit ${place}`;
        box.prompt = QUESTION;
        box.placeholder = 'For example: handle an empty list';
        box.ignoreFocusOut = true;
        // Comes later, because it needs requests to the server.
        void describeNextTurn(this.turns).then(facts => (box.prompt = `${QUESTION} Next turn: ${facts}.`));
        return new Promise(resolve => {
            box.onDidAccept(() => {
                resolve(box.value);
                box.hide();
            });
            box.onDidHide(() => {
                resolve(undefined);
                box.dispose();
            });
            box.show();
        });
    }

    private async act(argument: ActionArgument): Promise<void> {
        if (argument.name === 'edit' && !argument.instruction) {
            const instruction = await this.askForInstruction(placeOf(argument));
            if (!instruction?.trim()) {
                return;
            }
            argument = { ...argument, instruction };
        }
        if (!(await ensureModel(this.turns))) {
            return;
        }
        const running = await this.turns.launch('thinklsp.action', argument);
        if (running === undefined) {
            return;
        }
        this.working.on(argument, running);
        const isAnswer = ANSWERING.has(argument.name ?? '');
        if (isAnswer) {
            this.answer(argument, running);
        }
        running.result.then(
            result => {
                if (result.stopReason === 'error') {
                    // The server shows the sentence too, a moment later and without a button.
                    mute(result.text);
                    const isTold = isAnswer && this.isChatShown();
                    return isTold ? undefined : explain(result.text, () => told(() => this.act(argument)));
                }
                tickTour(argument.name ?? '', result);
                if (result.edits !== null) {
                    void commands.executeCommand('setContext', 'thinklsp.hasEdited', true);
                }
                return isAnswer ? undefined : this.outcomes.tell(result, argument.uri);
            },
            () => undefined,
        );
    }

    /** Registers one command per action, because VS Code 1.134 and newer may drop actions whose command has arguments. */
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

/** Words for the place of an action. A bare cursor stands for the definition or line that the server finds. */
function placeOf({ range }: ActionArgument): string {
    if (range === undefined) {
        return 'the file';
    }
    const [first, last] = [range.start.line + 1, range.end.line + 1];
    if (first < last) {
        return `lines ${first} to ${last}`;
    }
    return range.start.character === range.end.character ? `the code at line ${first}` : `line ${first}`;
}
