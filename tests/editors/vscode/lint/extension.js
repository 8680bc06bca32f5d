// Starts thinklsp-lint as the server of Python.
const { LanguageClient } = require('vscode-languageclient/node');

exports.activate = context => {
    const options = { documentSelector: [{ language: 'python' }] };
    const client = new LanguageClient('lint', 'lint', { command: 'thinklsp-lint' }, options);
    context.subscriptions.push({ dispose: () => client.stop() });
    return client.start();
};
