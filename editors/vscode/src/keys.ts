/** API keys: kept in the editor's secret storage, given to the server as environment, never written to a setting. */

import { type ExtensionContext, type QuickPickItem, window } from 'vscode';

interface Provider extends QuickPickItem {
    variable: string;
}

const PROVIDERS: Provider[] = [
    { label: 'Anthropic', description: 'Claude', variable: 'ANTHROPIC_API_KEY' },
    { label: 'OpenAI', description: 'GPT', variable: 'OPENAI_API_KEY' },
    { label: 'Google', description: 'Gemini', variable: 'GEMINI_API_KEY' },
    {
        label: 'OpenAI-compatible server',
        description: 'its address is THINKLSP_COMPATIBLE_BASE_URL or stands in the user file',
        variable: 'THINKLSP_COMPATIBLE_API_KEY',
    },
];

/** Asks for provider and key. True: something has changed. */
export async function setKey(context: ExtensionContext): Promise<boolean> {
    const kept = await keys(context);
    const items = PROVIDERS.map(item => (item.variable in kept ? { ...item, detail: '$(key) a key is stored' } : item));
    const provider = await window.showQuickPick(items, { title: 'Set an API key', placeHolder: 'Provider' });
    if (provider === undefined) {
        return false;
    }
    const known = provider.variable in kept;
    const key = await window.showInputBox({
        title: `API key for ${provider.label}`,
        prompt: `It is kept in the editor's secret storage.${known ? ' Leave it empty to delete the stored one.' : ''}`,
        password: true,
        ignoreFocusOut: true,
        validateInput: text => (/\s/.test(text.trim()) ? 'A key holds no spaces or line ends.' : undefined),
    });
    if (key === undefined || (key.trim() === '' && !known)) {
        return false;
    }
    if (key.trim() === '') {
        await context.secrets.delete(provider.variable);
    } else {
        await context.secrets.store(provider.variable, key.trim());
    }
    return true;
}

/** The stored keys by the name of their environment variable. */
export async function keys(context: ExtensionContext): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const { variable } of PROVIDERS) {
        const key = await context.secrets.get(variable);
        if (key !== undefined) {
            found[variable] = key;
        }
    }
    return found;
}
