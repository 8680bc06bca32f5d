/** The findings of reviews: check boxes in the chat view, and entries in the Problems view. */

import {
    CodeAction,
    CodeActionKind,
    Diagnostic,
    type Disposable,
    type Event,
    EventEmitter,
    Range,
    Uri,
    commands,
    languages,
    window,
    workspace,
} from 'vscode';
import type { TurnResult } from '../protocol';
import { found } from './context';
import type { ShownFinding } from './messages';
import { parseFindings } from './places';

const CHECK = 'thinklsp.ui.checkFinding';
const CLEAR = 'thinklsp.ui.clearFindings';

interface Finding {
    uri: Uri;
    range: Range;
    /** As in LSP: 1 is an error, 2 a warning, 3 a note, 4 a hint. */
    severity: number;
    message: string;
    checked: boolean;
}

export class Findings implements Disposable {
    private readonly byTurn = new Map<string, Finding[]>();
    private readonly problems = languages.createDiagnosticCollection('thinklsp review');
    private readonly changed = new EventEmitter<string>();
    private readonly subscriptions: Disposable[];

    /** Fires with the id of a turn whose findings have changed. */
    readonly onDidChange: Event<string> = this.changed.event;

    constructor() {
        const selector = [{ scheme: 'file' }, { scheme: 'untitled' }, { scheme: 'vscode-remote' }];
        this.subscriptions = [
            this.problems,
            this.changed,
            commands.registerCommand(CHECK, () => this.checkHere()),
            commands.registerCommand(CLEAR, () => this.clear()),
            languages.registerCodeActionsProvider(selector, {
                provideCodeActions: ({ uri }, range) => {
                    if (![...this.at(uri, range)].length) {
                        return [];
                    }
                    const action = new CodeAction('thinklsp: check off this finding', CodeActionKind.QuickFix);
                    action.command = { command: CHECK, title: action.title };
                    return [action];
                },
            }),
        ];
    }

    /** Takes the findings that the server reports, else the ones in the text of a review. */
    async take({ turnId, text, findings }: TurnResult, isReview: boolean): Promise<void> {
        const taken: Finding[] = [];
        for (const { uri, range, severity, message } of findings ?? []) {
            const { start, end } = range;
            const place = new Range(start.line, start.character, end.line, end.character);
            taken.push({ uri: Uri.parse(uri), range: place, severity, message, checked: false });
        }
        for (const { path, lines, severity, message } of isReview && !findings ? parseFindings(text) : []) {
            const uri = await found(path);
            if (uri !== undefined) {
                taken.push({ uri, range: new Range(lines[0], 0, lines[1] + 1, 0), severity, message, checked: false });
            }
        }
        if (taken.length > 0) {
            this.byTurn.set(turnId, taken);
            this.update(turnId);
        }
    }

    shown(turnId: string): ShownFinding[] {
        return (this.byTurn.get(turnId) ?? []).map(({ uri, range, severity, message, checked }) => ({
            place: `${workspace.asRelativePath(uri)}:${range.start.line + 1}`,
            level: severity === 1 ? 'error' : severity === 2 ? 'warning' : 'info',
            message,
            checked,
        }));
    }

    check(turnId: string, number: number, checked: boolean): void {
        const finding = this.byTurn.get(turnId)?.[number];
        if (finding !== undefined) {
            finding.checked = checked;
            this.update(turnId);
        }
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    private *at(uri: Uri, range: Range): Iterable<[string, Finding]> {
        for (const [turnId, findings] of this.byTurn) {
            for (const finding of findings) {
                if (!finding.checked && finding.uri.toString() === uri.toString() && finding.range.intersection(range)) {
                    yield [turnId, finding];
                }
            }
        }
    }

    /** Checks the findings at the cursor. */
    private checkHere(): void {
        const editor = window.activeTextEditor;
        for (const [turnId, finding] of editor === undefined ? [] : this.at(editor.document.uri, editor.selection)) {
            finding.checked = true;
            this.update(turnId);
        }
    }

    private clear(): void {
        for (const [turnId, findings] of this.byTurn) {
            findings.forEach(finding => (finding.checked = true));
            this.update(turnId);
        }
    }

    private update(turnId: string): void {
        const byFile = new Map<string, [Uri, Diagnostic[]]>();
        for (const { uri, range, severity, message } of [...this.byTurn.values()].flat().filter(({ checked }) => !checked)) {
            const [, problems] = byFile.get(uri.toString()) ?? [uri, []];
            const problem = new Diagnostic(range, message, severity - 1);
            problem.source = 'thinklsp review';
            byFile.set(uri.toString(), [uri, [...problems, problem]]);
        }
        this.problems.clear();
        this.problems.set([...byFile.values()]);
        this.changed.fire(turnId);
    }
}
