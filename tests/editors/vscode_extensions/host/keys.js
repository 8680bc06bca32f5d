// Compares the extension's keys with the editor's defaults, which the editor lists for the system of the window.
const assert = require('node:assert/strict');
const { writeFileSync } = require('node:fs');
const vscode = require('vscode');

async function findKeys() {
    const page = await vscode.workspace.openTextDocument(vscode.Uri.parse('vscode://defaultsettings/keybindings.json'));
    const rules = JSON.parse(page.getText().replace(/^\s*\/\/.*$/gm, ''));
    assert.ok(rules.length > 500, `only ${rules.length} rules`);
    const isOurs = ({ command }) => command.startsWith('thinklsp.');
    const taken = new Map(rules.filter(rule => !isOurs(rule)).map(rule => [rule.key, rule.command]));
    const mine = [...new Set(rules.filter(isOurs).map(({ key }) => key))];
    assert.deepEqual(mine.filter(key => taken.has(key)).map(key => `${key}: ${taken.get(key)}`), []);
    return { keys: mine, isMac: rules.some(({ key }) => key.startsWith('cmd+')) };
}

exports.findKeys = findKeys;

/** Leaves {keys, isMac} or {error} where TRIAL_REPORT says. */
exports.run = async () => {
    let found;
    try {
        found = await findKeys();
    } catch (error) {
        found = { error: String(error) };
    }
    writeFileSync(process.env.TRIAL_REPORT, JSON.stringify(found));
};
