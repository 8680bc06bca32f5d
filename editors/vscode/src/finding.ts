/** Where the server is. Programs inside an opened folder count only when the user trusts it. */

import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, delimiter, extname, isAbsolute, join, sep } from 'node:path';
import { promisify } from 'node:util';
import { extensions, type Uri, workspace } from 'vscode';

/** `how`: where it was found, in words for the log. */
export interface Program {
    command: string;
    args: string[];
    how: string;
}

const PROBE_MS = 10_000;
const WINDOWS = process.platform === 'win32';

/** The first that is there: the setting, PATH with the folder of pipx and uv, the Python of the workspace, any Python.
 * `tell` hears of each place that was looked at in vain. */
export async function findServer(tell: (said: string) => void): Promise<Program | undefined> {
    const set = workspace.getConfiguration('thinklsp.ui').get<string>('server.path', '').trim();
    if (set !== '') {
        const path = set.replace(/^~(?=[/\\])/, homedir());
        if (!isAbsolute(path) || !(await isProgram(path))) {
            tell(`thinklsp.ui.server.path names no program: ${set}`);
            return undefined;
        }
        return /^python/i.test(basename(path, extname(path)))
            ? asModule(path, 'thinklsp.ui.server.path')
            : { command: path, args: [], how: 'thinklsp.ui.server.path' };
    }
    const program = await onPath('thinklsp', tell);
    if (program !== undefined) {
        return { command: program, args: [], how: 'PATH' };
    }
    tell('no thinklsp on PATH');
    const active = await activePython();
    const pythons: [string | undefined, string][] = [
        [active, 'the active Python environment'],
        [await onPath('python3', tell), 'python3 on PATH'],
        [await onPath('python', tell), 'python on PATH'],
    ];
    for (const [python, how] of pythons) {
        if (python === undefined) {
            tell(`no ${how}`);
        } else if (!(await mayRun(python))) {
            tell(`${python} lies in a folder that is not trusted`);
        } else if (await hasServer(python)) {
            return asModule(python, how);
        } else {
            tell(`no thinklsp in ${python} (${how})`);
        }
    }
    return undefined;
}

function asModule(python: string, how: string): Program {
    return { command: python, args: ['-m', 'thinklsp'], how };
}

async function hasServer(python: string): Promise<boolean> {
    try {
        // -P: nothing is imported from the folder that happens to be the current one.
        const found = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("thinklsp.__main__") is None)';
        await promisify(execFile)(python, ['-P', '-c', found], { timeout: PROBE_MS, cwd: __dirname });
        return true;
    } catch {
        return false;
    }
}

async function onPath(name: string, tell: (said: string) => void): Promise<string | undefined> {
    const folders = (process.env['PATH'] ?? '').split(delimiter).filter(isAbsolute);
    // Where pipx and uv put programs; editors that were not started from a terminal do not know it.
    folders.push(join(homedir(), '.local', 'bin'));
    for (const folder of folders) {
        const path = join(folder, WINDOWS ? `${name}.exe` : name);
        if (await isProgram(path)) {
            if (await mayRun(path)) {
                return path;
            }
            tell(`${path} lies in a folder that is not trusted`);
        }
    }
    return undefined;
}

async function isProgram(path: string): Promise<boolean> {
    return access(path, constants.X_OK).then(
        () => true,
        () => false,
    );
}

async function mayRun(path: string): Promise<boolean> {
    if (workspace.isTrusted) {
        return true;
    }
    // The interpreter of an environment is a link to one elsewhere: both names count.
    const names = [path, await realpath(path).catch(() => path)];
    const roots = await Promise.all(
        (workspace.workspaceFolders ?? []).map(async ({ uri }) => [
            uri.fsPath,
            await realpath(uri.fsPath).catch(() => uri.fsPath),
        ]),
    );
    return !roots.flat().some(root => names.some(name => name.startsWith(root + sep)));
}

/** What the Python extension calls the interpreter of this workspace; undefined where it is not installed. */
async function activePython(): Promise<string | undefined> {
    interface Environments {
        getActiveEnvironmentPath(): { path: string };
        resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
    }
    const extension = extensions.getExtension<{ environments?: Environments }>('ms-python.python');
    try {
        const environments = (await extension?.activate())?.environments;
        const resolved = await environments?.resolveEnvironment(environments.getActiveEnvironmentPath());
        return resolved?.executable.uri?.fsPath;
    } catch {
        return undefined;
    }
}
