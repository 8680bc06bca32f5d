/** Marks the lines that a turn works on and shows its progress at the end of the first line. */

import {
    type Disposable,
    MarkdownString,
    Range,
    type TextDocumentContentChangeEvent,
    type TextEditor,
    ThemeColor,
    window,
    workspace,
} from 'vscode';
import type { ActionArgument } from './protocol';
import type { Running, Turns } from './turns';

interface Place {
    uri: string;
    first: number;
    last: number;
}

const MUTED = new ThemeColor('editorCodeLens.foreground');

export class WorkingOn implements Disposable {
    private readonly places = new Set<Place>();
    private readonly lines = window.createTextEditorDecorationType({
        isWholeLine: true,
        backgroundColor: new ThemeColor('editor.inactiveSelectionBackground'),
        overviewRulerColor: new ThemeColor('progressBar.background'),
    });
    private readonly note = window.createTextEditorDecorationType({
        after: { color: MUTED, fontStyle: 'italic', margin: '0 0 0 2em' },
    });
    private readonly subscriptions: Disposable[];

    constructor(private readonly turns: Turns) {
        this.subscriptions = [
            this.lines,
            this.note,
            turns.onDidChange(() => this.draw()),
            window.onDidChangeVisibleTextEditors(() => this.draw()),
            workspace.onDidChangeTextDocument(change => {
                for (const place of this.places) {
                    if (place.uri === change.document.uri.toString()) {
                        change.contentChanges.forEach(one => move(place, one));
                    }
                }
            }),
        ];
    }

    /** Marks the lines of an action until its turn ends. */
    on({ uri, range }: ActionArgument, running: Running): void {
        if (uri === undefined || range === undefined) {
            return;
        }
        const open = workspace.textDocuments.find(document => same(document.uri.toString(), uri));
        const place: Place = {
            uri: open?.uri.toString() ?? uri,
            first: range.start.line,
            last: range.end.line,
        };
        this.places.add(place);
        this.draw();
        const ended = () => {
            this.places.delete(place);
            this.draw();
        };
        running.result.then(ended, ended);
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    private draw(): void {
        window.visibleTextEditors.forEach(editor => this.drawIn(editor));
    }

    private drawIn(editor: TextEditor): void {
        const uri = editor.document.uri.toString();
        const here = [...this.places].filter(place => place.uri === uri);
        const last = editor.document.lineCount - 1;
        const ranges = here.map(place => new Range(Math.min(place.first, last), 0, Math.min(place.last, last), 0));
        editor.setDecorations(this.lines, ranges);
        const look = this.turns.state;
        const words =
            look.kind === 'thinking'
                ? [`${look.phase} …`, look.elapsed].filter(Boolean).join(' ')
                : look.kind === 'waiting'
                  ? 'waiting for you'
                  : '';
        editor.setDecorations(
            this.note,
            ranges.map(range => ({
                range: editor.document.lineAt(range.start.line).range,
                hoverMessage: new MarkdownString('thinklsp is working on these lines.'),
                renderOptions: { after: { contentText: words } },
            })),
        );
    }
}

/** Moves the marked lines when lines above them are inserted or deleted. */
function move(place: Place, { range, text }: TextDocumentContentChangeEvent): void {
    const more = text.split('\n').length - 1 - (range.end.line - range.start.line);
    if (range.start.line < place.first) {
        place.first = Math.max(range.start.line, place.first + more);
    }
    if (range.start.line <= place.last) {
        place.last = Math.max(place.first, place.last + more);
    }
}

/** Compares two URIs without regard to escaping, which the server and the editor do differently. */
function same(one: string, other: string): boolean {
    return decodeURIComponent(one) === decodeURIComponent(other);
}
