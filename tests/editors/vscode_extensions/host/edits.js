// Edits of a server while the editor saves files by itself: what is marked, undone and kept. `asking` stands in the place of the server.
const assert = require('node:assert/strict');
const { existsSync, readFileSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const vscode = require('vscode');
const { until } = require('./until');

const NEVER = 600_000;

exports.tests = {
    'a new file that was saved and closed before the end of its edit is undone': async () => {
        await saveAfter(10);
        writeFileSync(pathOf('gone.py'), 'x = 1\n');
        const held = vscode.workspace.onWillDeleteFiles(event => event.waitUntil(until(() => isClosed('closed.md'))));
        await apply([...create('closed.md', '# New\n'), { kind: 'delete', uri: uriOf('gone.py').toString() }]);
        held.dispose();
        assert.equal(readFileSync(pathOf('closed.md'), 'utf-8'), '# New\n');
        await undoAll();
        assert.ok(!existsSync(pathOf('closed.md')));
        assert.equal(readFileSync(pathOf('gone.py'), 'utf-8'), 'x = 1\n');
    },
    'a new file is saved before an undo deletes it': async () => {
        await saveAfter(NEVER);
        await apply(create('open.md', '# New\n'));
        const order = await watched('open.md', undoAll);
        assert.deepEqual(order, ['saved', 'deleted']);
        assert.ok(!existsSync(pathOf('open.md')));
    },
    'a new file with text of the user is not deleted': async () => {
        await saveAfter(NEVER);
        await apply(create('mine.md', '# New\n'));
        const document = await vscode.workspace.openTextDocument(uriOf('mine.md'));
        const edit = new vscode.WorkspaceEdit();
        edit.insert(document.uri, new vscode.Position(0, 0), 'mine\n');
        await vscode.workspace.applyEdit(edit);
        await undoAll();
        await document.save();
        assert.equal(readFileSync(pathOf('mine.md'), 'utf-8'), 'mine\n# New\n');
    },
    'a file is saved before an edit and its undo rename it': async () => {
        await saveAfter(NEVER);
        writeFileSync(pathOf('one.py'), 'a = 1\n');
        const [oldUri, newUri] = [uriOf('one.py').toString(), uriOf('other.py').toString()];
        const edits = [insertion('b')];
        const changes = [{ textDocument: { uri: oldUri, version: null }, edits }, { kind: 'rename', oldUri, newUri }];
        assert.deepEqual(await watched('one.py', () => apply(changes)), ['saved', 'renamed']);
        assert.deepEqual([existsSync(pathOf('one.py')), readFileSync(pathOf('other.py'), 'utf-8')], [false, 'ba = 1\n']);
        assert.deepEqual(await watched('other.py', undoAll), ['saved', 'renamed']);
        assert.deepEqual([readFileSync(pathOf('one.py'), 'utf-8'), existsSync(pathOf('other.py'))], ['a = 1\n', false]);
    },
};

async function saveAfter(milliseconds) {
    const settings = vscode.workspace.getConfiguration('files');
    await settings.update('autoSaveDelay', milliseconds, vscode.ConfigurationTarget.Global);
    await settings.update('autoSave', 'afterDelay', vscode.ConfigurationTarget.Global);
}

async function apply(documentChanges) {
    const params = { label: 'thinklsp: arrange the files', edit: { documentChanges } };
    assert.equal(await vscode.commands.executeCommand('trial.apply', params), true);
}

function undoAll() {
    return vscode.commands.executeCommand('thinklsp.ui.undoAllChanges');
}

/** Returns what the editor did with the file, in order, while something ran. */
async function watched(name, run) {
    const order = [];
    const note = (what, uris) => uris.some(uri => uri.path === uriOf(name).path) && order.push(what);
    const { workspace } = vscode;
    const watching = vscode.Disposable.from(
        workspace.onDidSaveTextDocument(document => note('saved', [document.uri])),
        workspace.onDidDeleteFiles(({ files }) => note('deleted', files)),
        workspace.onDidRenameFiles(({ files }) => note('renamed', files.map(file => file.oldUri))),
    );
    await run();
    watching.dispose();
    return order;
}

function create(name, text) {
    const uri = uriOf(name).toString();
    return [{ kind: 'create', uri }, { textDocument: { uri, version: null }, edits: [insertion(text)] }];
}

function insertion(newText) {
    return { range: { start: { line: 0, character: 0 }, end: { line: 0, character: 0 } }, newText };
}

function isClosed(name) {
    const isSaved = existsSync(pathOf(name)) && readFileSync(pathOf(name), 'utf-8') !== '';
    return isSaved && !vscode.workspace.textDocuments.some(document => document.uri.path === uriOf(name).path);
}

function uriOf(name) {
    return vscode.Uri.joinPath(vscode.workspace.workspaceFolders[0].uri, name);
}

function pathOf(name) {
    return join(vscode.workspace.workspaceFolders[0].uri.fsPath, name);
}
