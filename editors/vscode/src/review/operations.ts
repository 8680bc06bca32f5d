/** The operations of a workspace edit on whole files. Pure functions. */

import type { WorkspaceEdit } from 'vscode-languageclient/node';

type Change = NonNullable<WorkspaceEdit['documentChanges']>[number];

/** Returns the URI of the file that is no longer there after a change. */
export function findRemoved(change: Change): string[] {
    if (!('kind' in change) || change.kind === 'create') {
        return [];
    }
    return [change.kind === 'delete' ? change.uri : change.oldUri];
}

/** Splits an edit before each rename of a file whose text it changes too, if `isSplit` says so for the file. */
export function splitAtRenames(edit: WorkspaceEdit, isSplit: (uri: string) => boolean): WorkspaceEdit[] {
    // The editor asks the user once about an edit that needs a confirmation.
    const isAsked = Object.values(edit.changeAnnotations ?? {}).some(annotation => annotation.needsConfirmation);
    if (isAsked || edit.documentChanges === undefined) {
        return [edit];
    }
    const parts: Change[][] = [[]];
    const changed = new Set<string>();
    for (const change of edit.documentChanges) {
        if (!('kind' in change)) {
            changed.add(change.textDocument.uri);
        } else if (change.kind === 'rename' && changed.has(change.oldUri) && isSplit(change.oldUri)) {
            parts.push([]);
        }
        parts.at(-1)?.push(change);
    }
    return parts.map(documentChanges => ({ ...edit, documentChanges }));
}
