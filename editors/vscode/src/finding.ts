/** Finds the server program. A program inside an opened folder is used only if the user trusts the folder. */

import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, delimiter, extname, isAbsolute, join, sep } from 'node:path';
import { promisify } from 'node:util';
import { extensions, type Uri, workspace } from 'vscode';
import { type PrivateServer, isSuitable } from './private-server';

/** A program that can be started. `how` tells the log where the program was found. */
export interface Program {
    command: string;
    args: string[];
    how: string;
}

const PROBE_MS = 10_000;
// Where the system's own Python is older.
const NEWER = ['python3.14', 'python3.13', 'python3.12', 'python3.11'];

/** Returns the first server found: by the setting, on PATH (with the folder of pipx and uv), in the extension's own
 * environment, in the Python environment of the workspace, in any Python. Calls `tell` for each place without a server. */
export async function findServer(own: PrivateServer, tell: (said: string) => void): Promise<Program | undefined> {
    const set = workspace.getConfiguration('thinklsp.ui').get<string>('server.path', '').trim();
    if (set !== '') {
        const path = set.replace(/^~(?=[/\\])/, homedir());
        if (!isAbsolute(path) || !(await isProgram(path))) {
            tell(`the setting thinklsp.ui.server.path is not a program: ${set}`);
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
    const installed = await own.find();
    if (installed !== undefined) {
        return asModule(installed.python, 'the server that the extension installed');
    }
    tell('the extension has not installed a server');
    for await (const [python, how] of pythons(tell)) {
        if (await hasServer(python)) {
            return asModule(python, how);
        }
        tell(`no thinklsp in ${python} (${how})`);
    }
    return undefined;
}

/** Returns a Python that can install the server into an environment of its own. */
export async function findPython(tell: (said: string) => void): Promise<string | undefined> {
    for await (const [python, how] of pythons(tell)) {
        if (await isSuitable(python)) {
            return python;
        }
        tell(`${python} (${how}) is older than 3.11, or has no module venv`);
    }
    return undefined;
}

/** Yields the Pythons that may run, and how each was found. */
async function* pythons(tell: (said: string) => void): AsyncGenerator<[string, string]> {
    const active = await activePython();
    if (active === undefined) {
        tell('no active Python environment');
    } else if (await mayRun(active)) {
        yield [active, 'the active Python environment'];
    } else {
        tell(`${active} is in a folder that is not trusted`);
    }
    for (const name of ['python3', 'python', ...NEWER]) {
        const python = await onPath(name, tell);
        if (python === undefined) {
            tell(`no ${name} on PATH`);
        } else {
            yield [python, `${name} on PATH`];
        }
    }
}

function asModule(python: string, how: string): Program {
    return { command: python, args: ['-m', 'thinklsp'], how };
}

async function hasServer(python: string): Promise<boolean> {
    try {
        // With -P Python imports nothing from the current folder.
        const found = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("thinklsp.__main__") is None)';
        await promisify(execFile)(python, ['-P', '-c', found], { timeout: PROBE_MS, cwd: __dirname });
        return true;
    } catch {
        return false;
    }
}

async function onPath(name: string, tell: (said: string) => void): Promise<string | undefined> {
    const folders = (process.env['PATH'] ?? '').split(delimiter).filter(isAbsolute);
    // pipx and uv install programs here. An editor that was not started from a terminal may lack this folder on its PATH.
    folders.push(join(homedir(), '.local', 'bin'));
    for (const folder of folders) {
        const path = join(folder, name);
        if (await isProgram(path)) {
            if (await mayRun(path)) {
                return path;
            }
            tell(`${path} is in a folder that is not trusted`);
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
    // The interpreter of a virtual environment links to another one, so both paths are checked.
    const names = [path, await realpath(path).catch(() => path)];
    const roots = await Promise.all(
        (workspace.workspaceFolders ?? []).map(async ({ uri }) => [
            uri.fsPath,
            await realpath(uri.fsPath).catch(() => uri.fsPath),
        ]),
    );
    return !roots.flat().some(root => names.some(name => name.startsWith(root + sep)));
}

/** Returns the interpreter that the Python extension uses in this workspace; undefined without that extension. */
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
