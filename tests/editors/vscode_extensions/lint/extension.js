// Starts thinklsp-lint as the server of Python, and ruff as that of tally.py. `Trial: Take Settings` sets what stands in settings.json of the home
// folder; null takes a setting away. The file is gone when it is done.
const { readFileSync, rmSync } = require('node:fs');
const { homedir } = require('node:os');
const { join } = require('node:path');
const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

exports.activate = context => {
    const options = { documentSelector: [{ language: 'python' }] };
    const lint = new LanguageClient('lint', 'lint', { command: 'thinklsp-lint' }, options);
    const other = { documentSelector: [{ language: 'python', pattern: '**/tally.py' }] };
    const ruff = new LanguageClient('ruff', 'ruff', { command: 'ruff', args: ['server'] }, other);
    for (const client of [lint, ruff]) {
        context.subscriptions.push({ dispose: () => client.stop() });
    }
    context.subscriptions.push(vscode.commands.registerCommand('trial.take', take));
    return Promise.all([lint.start(), ruff.start()]);
};

async function take() {
    const file = join(homedir(), 'settings.json');
    const settings = JSON.parse(readFileSync(file, 'utf-8'));
    for (const [key, value] of Object.entries(settings)) {
        await vscode.workspace.getConfiguration().update(key, value ?? undefined, vscode.ConfigurationTarget.Global);
    }
    rmSync(file);
}
