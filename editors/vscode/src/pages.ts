/** Read-only documents of the extension: reports, and files with a proposed edit applied. */

import { type Disposable, EventEmitter, type TextDocumentContentProvider, Uri, commands, workspace } from 'vscode';

const SCHEME = 'thinklsp-page';

export class Pages implements TextDocumentContentProvider, Disposable {
    private readonly texts = new Map<string, string>();
    private readonly changed = new EventEmitter<Uri>();
    private readonly registered = workspace.registerTextDocumentContentProvider(SCHEME, this);
    private readonly closed = workspace.onDidCloseTextDocument(document => this.texts.delete(document.uri.toString()));

    readonly onDidChange = this.changed.event;

    provideTextDocumentContent(uri: Uri): string {
        return this.texts.get(uri.toString()) ?? '';
    }

    /** Creates a page and returns its URI. `name` is the title, and its extension selects the language. */
    put(name: string, text: string): Uri {
        const uri = Uri.from({ scheme: SCHEME, path: `/${name}` });
        this.texts.set(uri.toString(), text);
        this.changed.fire(uri);
        return uri;
    }

    /** Creates a page for another version of a file. It has the same path, so that the editor shows both as one file. */
    putVersion(file: Uri, version: string, text: string): Uri {
        const uri = Uri.from({ scheme: SCHEME, path: file.path, query: version });
        this.texts.set(uri.toString(), text);
        this.changed.fire(uri);
        return uri;
    }

    /** Shows Markdown as a preview. */
    async read(name: string, markdown: string): Promise<void> {
        await commands.executeCommand('markdown.showPreview', this.put(name, markdown));
    }

    async compare(uri: Uri, name: string, text: string): Promise<void> {
        await commands.executeCommand('vscode.diff', uri, this.put(name, text), `${name}: now ↔ proposed`);
    }

    dispose(): void {
        this.registered.dispose();
        this.closed.dispose();
        this.changed.dispose();
    }
}
