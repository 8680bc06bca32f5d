/** Tracks which document version the diagnostics belong to, because the editor does not report that version. */

import { type CancellationToken, Disposable, EventEmitter, type TextDocument, Uri, languages, workspace } from 'vscode';

/** How long the editor collects diagnostics before it reports a change, in milliseconds. */
const GATHERED = 50;
const PATIENCE = 1_500;

export class Freshness implements Disposable {
    private readonly versions = new Map<string, number>();
    private readonly typed = new Map<string, number>();
    private readonly told = new EventEmitter<void>();
    private readonly listeners: Disposable;

    constructor() {
        for (const [uri, found] of languages.getDiagnostics()) {
            const document = opened(uri);
            if (document !== undefined && found.length > 0) {
                this.versions.set(document.uri.toString(), document.version);
            }
        }
        this.listeners = Disposable.from(
            this.told,
            languages.onDidChangeDiagnostics(({ uris }) => this.tell(uris)),
            workspace.onDidChangeTextDocument(({ document }) => this.typed.set(document.uri.toString(), Date.now())),
            workspace.onDidCloseTextDocument(({ uri }) => {
                this.versions.delete(uri.toString());
                this.typed.delete(uri.toString());
            }),
        );
    }

    /** The latest version for which a server sent diagnostics; undefined before the first ones. */
    of(document: TextDocument): number | undefined {
        return this.versions.get(document.uri.toString());
    }

    /** Resolves when the servers have sent diagnostics for the current versions, or at the time limit. */
    async reached(documents: readonly TextDocument[], token: CancellationToken): Promise<void> {
        const fresh = () => documents.every(document => document.isClosed || this.of(document) === document.version);
        if (fresh() || token.isCancellationRequested) {
            return;
        }
        const waiting: Disposable[] = [];
        await new Promise<void>(resolve => {
            const timer = setTimeout(resolve, PATIENCE);
            waiting.push(
                new Disposable(() => clearTimeout(timer)),
                token.onCancellationRequested(() => resolve()),
                this.told.event(() => fresh() && resolve()),
            );
        });
        Disposable.from(...waiting).dispose();
    }

    dispose(): void {
        this.listeners.dispose();
    }

    private tell(uris: readonly Uri[]): void {
        for (const uri of uris) {
            const key = uri.toString();
            const document = opened(uri);
            // The collected diagnostics may be older than the last keystroke; their server will send them again.
            if (document !== undefined && Date.now() - (this.typed.get(key) ?? 0) >= GATHERED) {
                this.versions.set(key, document.version);
            }
        }
        this.told.fire();
    }
}

export function opened(uri: Uri): TextDocument | undefined {
    return workspace.textDocuments.find(document => document.uri.toString() === uri.toString());
}
