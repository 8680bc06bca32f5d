/** The server in a Python environment of the extension's own, installed from the wheel that the extension contains. */

import { execFile, spawn } from 'node:child_process';
import { access, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { type CancellationToken, type ExtensionContext, type LogOutputChannel, ProgressLocation, window } from 'vscode';

/** Written last, so that an installation that was interrupted is not used. */
const DONE = 'installed';
const PROBE_MS = 10_000;
// A Debian package of its own holds what `python -m venv` needs.
const SUITABLE = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))';

export class PrivateServer {
    private readonly root: string;
    private readonly wheels: string;

    constructor(
        context: ExtensionContext,
        private readonly log: LogOutputChannel,
    ) {
        this.root = join(context.globalStorageUri.fsPath, 'server');
        this.wheels = join(context.extensionPath, 'server');
    }

    /** Returns the wheel that this extension contains; undefined if it was built without one. */
    async wheel(): Promise<string | undefined> {
        return (await list(this.wheels)).find(name => name.endsWith('.whl'));
    }

    /** Returns the Python of the installation, and whether the wheel has another version. */
    async find(): Promise<{ python: string; isOutdated: boolean } | undefined> {
        const wheel = await this.wheel();
        const installed: string[] = [];
        for (const name of await list(this.root)) {
            if (await exists(join(this.root, name, DONE))) {
                installed.push(name);
            }
        }
        const current = installed.find(name => wheel !== undefined && name.startsWith(prefix(wheel)));
        const name = current ?? installed[0];
        if (name === undefined) {
            return undefined;
        }
        return { python: pythonOf(join(this.root, name)), isOutdated: wheel !== undefined && current === undefined };
    }

    /** Installs the wheel with the given Python, with progress; pip loads the other packages from the user's index.
     * Returns false if the user cancelled it. Throws an error with a message for the user. */
    async install(python: string): Promise<boolean> {
        const wheel = await this.wheel();
        if (wheel === undefined) {
            throw new Error('This extension was built without the server. Install the server as its README says.');
        }
        await mkdir(this.root, { recursive: true });
        const before = await list(this.root);
        // A name of its own, because another window may install at the same time.
        const folder = await mkdtemp(join(this.root, prefix(wheel)));
        try {
            await window.withProgress(
                { location: ProgressLocation.Notification, title: 'thinklsp: installing the server', cancellable: true },
                async (progress, token) => {
                    progress.report({ message: 'creating a Python environment' });
                    await this.run(python, ['-m', 'venv', folder], token);
                    progress.report({ message: 'installing packages' });
                    const pip = ['-m', 'pip', 'install', '--no-input', '--disable-pip-version-check'];
                    await this.run(pythonOf(folder), [...pip, join(this.wheels, wheel)], token);
                },
            );
            await writeFile(join(folder, DONE), '');
        } catch (error) {
            await rm(folder, { recursive: true, force: true });
            if (error instanceof Cancelled) {
                return false;
            }
            throw error;
        }
        for (const older of before.map(name => join(this.root, name))) {
            // Another window may still fill a folder that is not finished.
            if (await exists(join(older, DONE))) {
                await rm(older, { recursive: true, force: true });
            }
        }
        return true;
    }

    async remove(): Promise<void> {
        await rm(this.root, { recursive: true, force: true });
    }

    private async run(program: string, args: string[], token: CancellationToken): Promise<void> {
        this.log.info(`Running ${[program, ...args].join(' ')}`);
        // Python could otherwise import modules of the current folder.
        const child = spawn(program, args, { cwd: this.root, stdio: ['ignore', 'pipe', 'pipe'] });
        const lines: string[] = [];
        for (const stream of [child.stdout, child.stderr]) {
            createInterface({ input: stream }).on('line', line => {
                this.log.info(line);
                lines.push(line);
            });
        }
        const cancellation = token.onCancellationRequested(() => child.kill());
        try {
            const code = await new Promise<number | null>((resolve, reject) => child.on('error', reject).on('close', resolve));
            if (token.isCancellationRequested) {
                throw new Cancelled();
            }
            if (code !== 0) {
                throw new Error(explain(lines));
            }
        } finally {
            cancellation.dispose();
        }
    }
}

class Cancelled extends Error {}

/** Tells whether a Python can create the environment. */
export async function isSuitable(python: string): Promise<boolean> {
    try {
        await promisify(execFile)(python, ['-P', '-c', SUITABLE], { timeout: PROBE_MS, cwd: __dirname });
        return true;
    } catch {
        return false;
    }
}

function explain(lines: readonly string[]): string {
    const offline = lines.some(line => /No matching distribution|Max retries|ConnectionError|NewConnectionError/.test(line));
    return offline
        ? 'The server was not installed: pip could not load its packages. Check the network, then try again.'
        : 'The server was not installed. The log has the output of pip.';
}

/** The beginning of the names of a wheel's environments. */
function prefix(wheel: string): string {
    return `${wheel.split('-')[1]}-`;
}

function pythonOf(environment: string): string {
    return join(environment, 'bin', 'python');
}

async function list(folder: string): Promise<string[]> {
    return readdir(folder).catch(() => []);
}

async function exists(path: string): Promise<boolean> {
    return access(path).then(
        () => true,
        () => false,
    );
}
