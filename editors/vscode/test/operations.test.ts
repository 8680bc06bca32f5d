/** The operations of an edit on whole files. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { WorkspaceEdit } from 'vscode-languageclient/node';
import { findRemoved, splitAtRenames } from '../src/review/operations';

type Change = NonNullable<WorkspaceEdit['documentChanges']>[number];

const change = (uri: string): Change => ({ textDocument: { uri, version: null }, edits: [] });
const rename = (oldUri: string, newUri: string): Change => ({ kind: 'rename', oldUri, newUri });
const split = (documentChanges: Change[], only?: string) =>
    splitAtRenames({ documentChanges }, uri => only === undefined || uri === only).map(part => part.documentChanges);

test('an edit is split before the rename of a file that it changes', () => {
    const changes = [change('a'), change('b'), rename('b', 'c'), change('d'), rename('d', 'e')];
    assert.deepEqual(split(changes), [changes.slice(0, 2), changes.slice(2, 4), changes.slice(4)]);
    assert.deepEqual(split(changes, 'd'), [changes.slice(0, 4), changes.slice(4)]);
});

test('every other edit stays whole', () => {
    const changes = [change('a'), rename('b', 'c')];
    assert.deepEqual(split(changes), [changes]);
    assert.deepEqual(split([]), [[]]);
    const plain = { changes: { a: [] } };
    assert.deepEqual(splitAtRenames(plain, () => true), [plain]);
    const asked = {
        documentChanges: [change('a'), rename('a', 'b')],
        changeAnnotations: { one: { label: 'one', needsConfirmation: true } },
    };
    assert.deepEqual(splitAtRenames(asked, () => true), [asked]);
});

test('a deleted and a renamed file are no longer there', () => {
    const changes = [change('a'), rename('b', 'c'), { kind: 'delete', uri: 'd' } as const, { kind: 'create', uri: 'e' } as const];
    assert.deepEqual(changes.flatMap(findRemoved), ['b', 'd']);
});
