/** Answers the server's requests `thinklsp/editor/…` from everything that the editor's extensions know. */

import {
    type CancellationToken,
    type DocumentSymbol,
    type Hover,
    Location,
    type LocationLink,
    type SymbolInformation,
    type Uri,
    commands,
    languages,
    window,
    workspace,
} from 'vscode';
import type {
    BaseLanguageClient,
    ClientCapabilities,
    FeatureState,
    StaticFeature,
    TextDocumentPositionParams,
} from 'vscode-languageclient/node';
import type { EditReview } from './client';
import { Freshness, opened } from './freshness';
import type { ReviewParams } from './review/review';

const SCHEMES = ['file', 'untitled'];

type Answers = Record<string, (params: never, token: CancellationToken) => Promise<unknown>>;

export class Bridge implements StaticFeature {
    private freshness: Freshness | undefined;

    /** `review`: undefined if the editor's refactor preview is used instead. */
    constructor(
        private readonly client: BaseLanguageClient,
        private readonly review: EditReview | undefined,
    ) {
        if (review !== undefined) {
            this.answers['review'] = (params: ReviewParams, token) => review.ask(params, token);
        }
    }

    private readonly answers: Answers = {
        diagnostics: ({ uri }: { uri?: string }, token) => this.diagnostics(uri, token),
        definition: (place: TextDocumentPositionParams) => this.places('vscode.executeDefinitionProvider', place),
        references: (place: TextDocumentPositionParams) => this.places('vscode.executeReferenceProvider', place),
        hover: (place: TextDocumentPositionParams) => this.hover(place),
        symbols: ({ uri, query }: { uri?: string; query?: string }) => this.symbols(uri, query),
        save: ({ uris }: { uris: string[] }) => this.save(uris),
        input: ({ question }: { question: string }, token) => this.input(question, token),
    };

    fillClientCapabilities(capabilities: ClientCapabilities): void {
        const editor = [...Object.keys(this.answers), ...(this.review === undefined ? [] : ['kept'])];
        capabilities.experimental = { ...capabilities.experimental, thinklsp: { editor } };
    }

    initialize(): void {
        this.freshness = new Freshness();
        for (const [name, answer] of Object.entries(this.answers)) {
            this.client.onRequest(`thinklsp/editor/${name}`, answer);
        }
    }

    getState(): FeatureState {
        return { kind: 'static' };
    }

    clear(): void {
        this.freshness?.dispose();
        this.freshness = undefined;
    }

    /** Returns the diagnostics of all servers, after a short wait for those of the current text. */
    private async diagnostics(only: string | undefined, token: CancellationToken): Promise<object[]> {
        const { freshness } = this;
        if (only === undefined) {
            const known = shown().filter(document => freshness?.of(document) !== undefined);
            await freshness?.reached(known, token);
        } else {
            const document = opened(this.uri(only));
            await freshness?.reached(document === undefined ? [] : [document], token);
        }
        return this.about(only).map(uri => {
            const document = opened(uri);
            const found = languages.getDiagnostics(uri);
            return {
                uri: this.client.code2ProtocolConverter.asUri(uri),
                version: (document && freshness?.of(document)) ?? null,
                diagnostics: found.map(diagnostic => this.client.code2ProtocolConverter.asDiagnostic(diagnostic)),
            };
        });
    }

    /** Returns the documents with diagnostics and the open documents that were checked without a finding. */
    private about(only: string | undefined): Uri[] {
        if (only !== undefined) {
            return [this.uri(only)];
        }
        const found = languages.getDiagnostics().filter(([, diagnostics]) => diagnostics.length > 0);
        const looked = shown().filter(document => this.freshness?.of(document) !== undefined);
        const uris = [...found.map(([uri]) => uri), ...looked.map(document => document.uri)];
        const known = new Map(uris.filter(uri => SCHEMES.includes(uri.scheme)).map(uri => [uri.toString(), uri]));
        return [...known.values()];
    }

    /** Asks the user for a text; `null` if the user dismisses the question. */
    private async input(question: string, token: CancellationToken): Promise<{ text: string | null }> {
        const text = await window.showInputBox({ title: 'thinklsp', prompt: question, ignoreFocusOut: true }, token);
        return { text: text ?? null };
    }

    private async places(command: string, place: TextDocumentPositionParams): Promise<object[]> {
        const found = await this.provided<(Location | LocationLink)[]>(command, place);
        return (found ?? []).map(one => {
            const { asUri, asRange } = this.client.code2ProtocolConverter;
            return one instanceof Location
                ? { uri: asUri(one.uri), range: asRange(one.range) }
                : { uri: asUri(one.targetUri), range: asRange(one.targetRange) };
        });
    }

    private async hover(place: TextDocumentPositionParams): Promise<object | null> {
        const found = await this.provided<Hover[]>('vscode.executeHoverProvider', place);
        const parts = (found ?? []).flatMap(hover => hover.contents);
        const texts = parts.map(part => (typeof part === 'string' ? part : part.value));
        return texts.length === 0 ? null : { contents: { kind: 'markdown', value: texts.join('\n\n---\n\n') } };
    }

    private async symbols(uri: string | undefined, query: string | undefined): Promise<object[]> {
        const found: (DocumentSymbol | SymbolInformation)[] | undefined =
            uri === undefined
                ? await commands.executeCommand('vscode.executeWorkspaceSymbolProvider', query ?? '')
                : await commands.executeCommand('vscode.executeDocumentSymbolProvider', this.uri(uri));
        return (found ?? []).map(symbol => this.symbol(symbol));
    }

    private symbol(symbol: DocumentSymbol | SymbolInformation): object {
        const { asLocation, asRange } = this.client.code2ProtocolConverter;
        // Symbol kinds start at 0 in the editor and at 1 in LSP.
        const shared = { name: symbol.name, kind: symbol.kind + 1 };
        // A document symbol has both ranges.
        if (!('selectionRange' in symbol)) {
            return { ...shared, containerName: symbol.containerName, location: asLocation(symbol.location) };
        }
        return {
            ...shared,
            detail: symbol.detail,
            range: asRange(symbol.range),
            selectionRange: asRange(symbol.selectionRange),
            children: symbol.children.map(child => this.symbol(child)),
        };
    }

    private async save(uris: string[]): Promise<object> {
        const saved = await Promise.all(uris.map(async uri => (await opened(this.uri(uri))?.save()) === true));
        return { saved: uris.filter((_, index) => saved[index]) };
    }

    private async provided<T>(command: string, place: TextDocumentPositionParams): Promise<T | undefined> {
        const position = this.client.protocol2CodeConverter.asPosition(place.position);
        return commands.executeCommand<T>(command, this.uri(place.textDocument.uri), position);
    }

    private uri(spelled: string): Uri {
        return this.client.protocol2CodeConverter.asUri(spelled);
    }
}

/** Returns the documents that have or had a tab, without the editor's internal documents. */
function shown() {
    return workspace.textDocuments.filter(document => SCHEMES.includes(document.uri.scheme));
}
