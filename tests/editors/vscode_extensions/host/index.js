// Runs in the extension host; leaves {name: {error, note}} where TRIAL_REPORT says.
const assert = require('node:assert/strict');
const { readdirSync, readFileSync, writeFileSync } = require('node:fs');
const { homedir } = require('node:os');
const { join } = require('node:path');
const vscode = require('vscode');
const edits = require('./edits');
const { findKeys } = require('./keys');
const { until } = require('./until');

const ID = 'thinklsp.thinklsp';
const SERVER = ['thinklsp.chat', 'thinklsp.action', 'thinklsp.effort', 'thinklsp.usage', 'thinklsp.sessions'];

const tests = {
    'nothing runs before it is needed': async () => {
        assert.equal(extension().isActive, false);
    },
    'it is active in no time': async () => {
        const began = performance.now();
        const idle = computed();
        await extension().activate();
        const computing = Math.round(computed() - idle);
        const took = performance.now() - began;
        // The rest is the editor's: it asks the window for what the extension has stored, and so does it for every one.
        const [loading, activating] = [between('LoadExtensionCode'), between('ActivateExtension')];
        // On a busy machine the processor runs other programs meanwhile.
        assert.ok(Math.min(loading + activating, computing) < 100, `${loading} + ${activating} ms, computed for ${computing} ms`);
        return `read in ${loading} ms, active in ${activating} ms; ${Math.round(took)} ms with the editor's own part`;
    },
    'the commands of the server are registered by the client': async () => {
        const all = await until(async () => {
            const known = await vscode.commands.getCommands(true);
            return SERVER.every(command => known.includes(command)) && known;
        });
        const mine = extension().packageJSON.contributes.commands.map(({ command }) => command);
        assert.deepEqual(mine.filter(command => !all.includes(command)), []);
    },
    'its keys are free in the editor': async () => (await findKeys()).keys.join(', '),
    'settings with their default are not sent': async () => {
        const { value } = await vscode.commands.executeCommand('thinklsp.effort', { value: 'low' });
        assert.equal(value, 'low');
        await vscode.workspace.getConfiguration('thinklsp').update('maxSteps', 7, vscode.ConfigurationTarget.Global);
        const report = await until(async () => {
            const found = await vscode.commands.executeCommand('thinklsp.doctor', {});
            return found.settings.values.maxSteps === 7 && found;
        });
        assert.deepEqual(Object.keys(report.settings.sources).sort(), ['effort', 'maxSteps']);
    },
    'actions come without arguments and run': async () => {
        const [file] = await vscode.workspace.findFiles('stats.py');
        const document = await vscode.workspace.openTextDocument(file);
        const range = new vscode.Range(0, 0, 2, 0);
        const actions = await until(async () => {
            const found = await vscode.commands.executeCommand('vscode.executeCodeActionProvider', file, range);
            return found.some(action => action.title.startsWith('thinklsp: fix')) && found;
        });
        const ours = actions.filter(action => action.title.startsWith('thinklsp: '));
        assert.deepEqual(ours.filter(action => action.command.arguments?.length), []);
        const fix = ours.find(action => action.title.startsWith('thinklsp: fix'));
        await vscode.commands.executeCommand(fix.command.command);
        await until(async () => document.getText().includes('len(values)'));
    },
    'a server that was killed comes back': async () => {
        const [before] = servers();
        process.kill(before, 'SIGKILL');
        await until(async () => servers().some(pid => pid !== before));
        await until(async () => {
            try {
                return (await vscode.commands.executeCommand('thinklsp.effort', { value: 'low' })).effective;
            } catch {
                return false; // Between the two servers the command is not registered.
            }
        });
    },
    'the editor answers what the server asks': async () => {
        const [file] = await vscode.workspace.findFiles('tally.py');
        const document = await vscode.workspace.openTextDocument(file);
        const whole = new vscode.Range(3, 0, 4, 23);
        const name = new vscode.Range(3, 4, 3, 9);
        const here = new vscode.Location(file, name);
        const { languages } = vscode;
        const problems = languages.createDiagnosticCollection('trial');
        problems.set(file, [new vscode.Diagnostic(name, 'of another extension', vscode.DiagnosticSeverity.Warning)]);
        languages.registerDefinitionProvider('python', {
            provideDefinition: () => [{ targetUri: file, targetRange: whole, targetSelectionRange: name }],
        });
        languages.registerReferenceProvider('python', { provideReferences: () => [here, new vscode.Location(file, whole)] });
        languages.registerHoverProvider('python', { provideHover: () => new vscode.Hover('of another extension') });
        const kind = vscode.SymbolKind.Function;
        languages.registerDocumentSymbolProvider('python', {
            provideDocumentSymbols: () => [new vscode.DocumentSymbol('tally', 'counts', kind, whole, name)],
        });
        languages.registerWorkspaceSymbolProvider({
            provideWorkspaceSymbols: query => [new vscode.SymbolInformation(query, kind, 'there', here)],
        });
        const asking = join(homedir(), 'bin', 'thinklsp-asking');
        const settings = vscode.workspace.getConfiguration('thinklsp.ui');
        await settings.update('server.path', asking, vscode.ConfigurationTarget.Global);
        await vscode.commands.executeCommand('thinklsp.ui.restart');
        const ask = (method, params) =>
            vscode.commands.executeCommand('trial.ask', { method: `thinklsp/editor/${method}`, params });

        const uri = file.toString();
        const range = { start: { line: 3, character: 4 }, end: { line: 3, character: 9 } };
        const larger = { start: { line: 3, character: 0 }, end: { line: 4, character: 23 } };
        const place = { textDocument: { uri }, position: { line: 3, character: 5 } };
        const [known] = await ask('diagnostics', { uri });
        assert.deepEqual([known.uri, known.version], [uri, document.version]);
        const mine = known.diagnostics.find(({ message }) => message === 'of another extension');
        assert.deepEqual([mine.severity, mine.range], [2, range]);
        assert.ok((await ask('diagnostics', {})).some(one => one.uri === uri));
        assert.deepEqual(await ask('definition', place), [{ uri, range: larger }]);
        const order = found => found.toSorted((one, other) => other.range.start.character - one.range.start.character);
        assert.deepEqual(order(await ask('references', place)), [{ uri, range }, { uri, range: larger }]);
        assert.match((await ask('hover', place)).contents.value, /of another extension/);
        const [symbol] = await ask('symbols', { uri });
        assert.deepEqual([symbol.name, symbol.kind, symbol.range, symbol.selectionRange], ['tally', 12, larger, range]);
        const [found] = await ask('symbols', { query: 'tal' });
        assert.deepEqual([found.name, found.kind, found.location], ['tal', 12, { uri, range }]);

        const edit = new vscode.WorkspaceEdit();
        edit.insert(file, new vscode.Position(0, 0), 'import sys\n');
        await vscode.workspace.applyEdit(edit);
        // Nobody has looked at it since: after some patience it is said for which version that is.
        const [older] = await ask('diagnostics', { uri });
        assert.ok(document.version > known.version && older.version <= document.version);
        assert.deepEqual(await ask('save', { uris: [uri, `${uri}.not`] }), { saved: [uri] });
        assert.match(readFileSync(file.fsPath, 'utf-8'), /^import sys\nimport os/);
    },
};

exports.run = async () => {
    const report = {};
    for (const [name, test] of Object.entries({ ...tests, ...edits.tests })) {
        try {
            report[name] = { note: await test() };
        } catch (error) {
            report[name] = { error: String(error.stack ?? error).split('\n').slice(0, 3).join(' ') };
        }
        writeFileSync(process.env.TRIAL_REPORT, JSON.stringify(report));
    }
};

function extension() {
    return vscode.extensions.getExtension(ID);
}

/** How long the editor itself says that it took, in milliseconds. */
function between(what) {
    const marks = globalThis.MonacoPerformanceMarks.getMarks();
    const at = name => marks.findLast(mark => mark.name === `code/extHost/${name}${what}/${ID}`).startTime;
    return at('did') - at('will');
}

/** How long this thread has computed, in milliseconds. */
function computed() {
    return Number(readFileSync('/proc/self/schedstat', 'utf-8').split(' ')[0]) / 1e6;
}

/** The processes of this extension host that are thinklsp. */
function servers() {
    return readdirSync('/proc')
        .filter(name => /^\d+$/.test(name))
        .filter(pid => {
            try {
                const [, parent] = /^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf-8'));
                const said = readFileSync(`/proc/${pid}/cmdline`, 'utf-8').split('\0');
                return Number(parent) === process.pid && said.includes('thinklsp');
            } catch {
                return false; // Gone meanwhile.
            }
        })
        .map(Number);
}
