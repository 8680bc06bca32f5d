/** Which version of a document the editor's diagnostics are about: it tells of them, but not of that. */

import { type CancellationToken, Disposable, EventEmitter, type TextDocument, Uri, languages, workspace } from 'vscode';

/** The editor gathers what is told for so long, in milliseconds, before it says so. */
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

    /** The latest version for which any server has told something; undefined: none has. */
    of(document: TextDocument): number | undefined {
        return this.versions.get(document.uri.toString());
    }

    /** Resolves when servers have told something about the present versions, and before anybody loses patience. */
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
            // What was gathered may be from before the last key. Who told that tells once more.
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
