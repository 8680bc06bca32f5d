/** Model servers on this machine: finds those that answer, and adds one to the user's file. */

import { appendFile, mkdir, readFile } from 'node:fs/promises';
import { get } from 'node:http';
import { dirname } from 'node:path';
import { type QuickPickItem, QuickPickItemKind, commands, window } from 'vscode';
import { warn } from './said';

const SERVERS: [port: number, name: string][] = [
    [11434, 'Ollama'],
    [1234, 'LM Studio'],
    [8000, 'vLLM'],
    [8080, 'llama.cpp'],
];
const PROBE_MS = 1_000;
const MAX_BYTES = 1_000_000;
const MAX_MODELS = 200;
const MAX_ID = 200;
const ADD = 'Add these lines';
const OPEN = 'Open config.toml';

export interface LocalModel extends QuickPickItem {
    baseUrl: string;
}

/** Returns the models of all servers that answer, below a separator for each server. */
export async function findLocalModels(): Promise<LocalModel[]> {
    const found = await Promise.all(
        SERVERS.map(async ([port, name]) => {
            const baseUrl = `http://127.0.0.1:${port}/v1`;
            const models = await listModels(`${baseUrl}/models`);
            const head = { label: `${name} (port ${port})`, kind: QuickPickItemKind.Separator, baseUrl };
            return models.length === 0 ? [] : [head, ...models.map(label => ({ label, baseUrl }))];
        }),
    );
    return found.flat();
}

/** Asks whether to add the server to the user's file, and adds it. Returns true if the file names the server now. */
export async function addLocalServer(baseUrl: string, file: string): Promise<boolean> {
    const url = `base_url = "${baseUrl}"`;
    const lines = `[providers.openai-compatible]\n${url}`;
    const before = await readFile(file, 'utf-8').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') {
            return '';
        }
        throw error;
    });
    if (before.includes(`${lines}\n`)) {
        return true;
    }
    // A second section of this name, in any spelling, would make the file invalid.
    if (/^[^#\n]*openai-compatible/m.test(before)) {
        const sentence = `Your config.toml already names a compatible server. Change its address there to ${url}.`;
        if ((await warn(sentence, OPEN)) === OPEN) {
            await commands.executeCommand('thinklsp.ui.openConfig');
        }
        return false;
    }
    const question = { modal: true, detail: `${lines}\n\nFile: ${file}` };
    if ((await window.showInformationMessage('Add the server to your thinklsp configuration?', question, ADD)) !== ADD) {
        return false;
    }
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    const gap = before === '' ? '' : before.endsWith('\n') ? '\n' : '\n\n';
    await appendFile(file, `${gap}${lines}\n`, { mode: 0o600 });
    return true;
}

/** Returns the model ids of an OpenAI-compatible server; none if the server does not answer as one. */
function listModels(url: string): Promise<string[]> {
    return new Promise(resolve => {
        const request = get(url, { signal: AbortSignal.timeout(PROBE_MS) }, response => {
            let text = '';
            response.setEncoding('utf-8');
            response.on('data', (part: string) => {
                text += part;
                if (text.length > MAX_BYTES) {
                    request.destroy();
                }
            });
            response.on('end', () => resolve(parseIds(text)));
            response.on('error', () => resolve([]));
            response.on('close', () => resolve([]));
        });
        request.on('error', () => resolve([]));
    });
}

function parseIds(text: string): string[] {
    try {
        const { data } = JSON.parse(text) as { data: { id: unknown }[] };
        const ids = data.map(({ id }) => id).filter(id => typeof id === 'string');
        return ids.filter(id => id.length <= MAX_ID).slice(0, MAX_MODELS);
    } catch {
        return [];
    }
}
