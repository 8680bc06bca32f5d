/** Marks changed lines in the editors, with code lenses and hovers that keep, undo and compare them. */

import {
    CodeLens,
    type CodeLensProvider,
    type Disposable,
    MarkdownString,
    OverviewRulerLane,
    type TextDocument,
    type TextEditor,
    ThemeColor,
    languages,
    window,
} from 'vscode';
import { type ChangedFile, isWhole, lineRangeOf } from './changed-files';
import type { Changes } from './changes';
import type { Hunk } from './hunks';
import { plainLine } from './words';

const MAX_SHOWN = 2_000;
export const KEEP = 'thinklsp.ui.keepChange';
export const UNDO = 'thinklsp.ui.undoChange';
export const COMPARE = 'thinklsp.ui.compareChange';
export const KEEP_FILE = 'thinklsp.ui.keepFile';
export const UNDO_FILE = 'thinklsp.ui.undoFile';
export const SHOW = 'thinklsp.ui.showChanges';

/** Names a hunk in the arguments of a command. */
export interface HunkArgument {
    uri: string;
    turn: string;
    number: number;
}

export class Marks implements CodeLensProvider, Disposable {
    private readonly added = window.createTextEditorDecorationType({
        isWholeLine: true,
        backgroundColor: new ThemeColor('diffEditor.insertedLineBackground'),
        overviewRulerColor: new ThemeColor('editorOverviewRuler.addedForeground'),
        overviewRulerLane: OverviewRulerLane.Left,
    });
    private readonly removed = window.createTextEditorDecorationType({
        isWholeLine: true,
        borderColor: new ThemeColor('editorOverviewRuler.deletedForeground'),
        borderStyle: 'dashed',
        borderWidth: '1px 0 0 0',
        overviewRulerColor: new ThemeColor('editorOverviewRuler.deletedForeground'),
        overviewRulerLane: OverviewRulerLane.Left,
    });
    private readonly subscriptions: Disposable[];

    readonly onDidChangeCodeLenses;

    constructor(private readonly changes: Changes) {
        this.onDidChangeCodeLenses = changes.onDidChange;
        this.subscriptions = [
            this.added,
            this.removed,
            changes.onDidChange(() => this.draw()),
            window.onDidChangeVisibleTextEditors(() => this.draw()),
            languages.registerCodeLensProvider([{ scheme: 'file' }, { scheme: 'untitled' }], this),
        ];
    }

    provideCodeLenses(document: TextDocument): CodeLens[] {
        return this.changes.in(document.uri).flatMap(file =>
            file.hunks.slice(0, MAX_SHOWN).flatMap((hunk, index) => {
                const range = lineRangeOf(hunk, document);
                const lens = (title: string, command: string, given: unknown, tooltip: string) =>
                    new CodeLens(range, { title, command, arguments: [given], tooltip });
                const one = [
                    lens('$(check) Keep', KEEP, argumentOf(file, hunk), 'Keep this change and remove its mark'),
                    lens('$(discard) Undo', UNDO, argumentOf(file, hunk), 'Restore the text before this change'),
                    lens('$(diff) Compare', COMPARE, argumentOf(file, hunk), 'Compare with the text before the turn'),
                ];
                if (index > 0) {
                    return one;
                }
                const sentence = plainLine(file.turn.text);
                const said = sentence === '' ? [] : [lens(sentence, SHOW, undefined, 'Show all changes with the answer')];
                if (file.hunks.length === 1) {
                    return [...one, ...said];
                }
                const count = `${file.hunks.length} changes`;
                const uri = document.uri.toString();
                return [
                    ...one,
                    lens(`Keep file (${count})`, KEEP_FILE, uri, 'Keep all changes in this file'),
                    lens('Undo file', UNDO_FILE, uri, 'Undo all changes in this file'),
                    ...said,
                ];
            }),
        );
    }

    dispose(): void {
        this.subscriptions.forEach(one => one.dispose());
    }

    private draw(): void {
        window.visibleTextEditors.forEach(editor => this.drawIn(editor));
    }

    private drawIn(editor: TextEditor): void {
        const { document } = editor;
        const found = this.changes.in(document.uri).flatMap(file =>
            file.hunks.slice(0, MAX_SHOWN).map(hunk => ({
                isAdded: hunk.end > hunk.start || isWhole(hunk),
                range: lineRangeOf(hunk, document),
                hoverMessage: hover(file, hunk, document.languageId),
            })),
        );
        editor.setDecorations(
            this.added,
            found.filter(mark => mark.isAdded),
        );
        editor.setDecorations(
            this.removed,
            found.filter(mark => !mark.isAdded),
        );
    }
}

/** Shows the removed text, and links that keep and undo the change. */
function hover(file: ChangedFile, hunk: Hunk, language: string): MarkdownString {
    const text = new MarkdownString('', true);
    text.isTrusted = { enabledCommands: [KEEP, UNDO, COMPARE] };
    const given = encodeURIComponent(JSON.stringify([argumentOf(file, hunk)]));
    const links = [
        `[$(check) Keep](command:${KEEP}?${given})`,
        `[$(discard) Undo](command:${UNDO}?${given})`,
        `[$(diff) Compare](command:${COMPARE}?${given})`,
    ];
    text.appendMarkdown(links.join(' · '));
    if (hunk.before.trim() !== '') {
        text.appendMarkdown('\n\nReplaced text:\n');
        text.appendCodeblock(hunk.before.replace(/\r?\n$/, ''), language);
    }
    return text;
}

function argumentOf(file: ChangedFile, hunk: Hunk): HunkArgument {
    return { uri: file.uri.toString(), turn: file.turn.label, number: hunk.number };
}
