/** The settings that the user has changed, without defaults, because those would override the user file. */

import { type ExtensionContext, workspace } from 'vscode';
import { isTour } from './tour';

type Tree = { [name: string]: unknown };

/** Returns every changed `thinklsp.*` setting of package.json, nested by its dots, without the extension's own
 * `thinklsp.ui.*` settings. */
export function configured(context: ExtensionContext): Tree {
    const found: Tree = {};
    const settings = workspace.getConfiguration();
    for (const key of settingsOf(context)) {
        const set = settings.inspect(key);
        const given = set?.workspaceFolderValue ?? set?.workspaceValue ?? set?.globalValue;
        if (given !== undefined) {
            put(found, key.split('.').slice(1), settings.get(key));
        }
    }
    if (isTour()) {
        found['provider'] = 'simulator';
    }
    return found;
}

function settingsOf(context: ExtensionContext): string[] {
    const { contributes } = context.extension.packageJSON as {
        contributes: { configuration: { properties: Tree }[] };
    };
    const keys = contributes.configuration.flatMap(group => Object.keys(group.properties));
    return keys.filter(key => !key.startsWith('thinklsp.ui.'));
}

function put(tree: Tree, path: string[], value: unknown): void {
    const [name, ...rest] = path;
    if (name === undefined) {
        return;
    }
    if (rest.length === 0) {
        tree[name] = value;
    } else {
        put((tree[name] ??= {}) as Tree, rest, value);
    }
}
