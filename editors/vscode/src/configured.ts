/** The settings that the user has set, as the server takes them. Defaults stay out: they would beat the user's own file. */

import { type ExtensionContext, workspace } from 'vscode';

type Tree = { [name: string]: unknown };

/** Every `thinklsp.*` setting of package.json that is set anywhere, nested by its dots. Those of this extension's own
 * face, `thinklsp.ui.*`, are none of the server's. */
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
