/** API keys: stored in the editor's secret storage and passed to the server as environment variables, never as settings. */

import { type ExtensionContext, InputBoxValidationSeverity, type QuickPickItem, ThemeIcon, Uri, env, window } from 'vscode';

/** A provider that a key is for. `id` is the value of the setting `thinklsp.provider`. */
export interface KeyProvider extends QuickPickItem {
    id: string;
    variable: string;
}

const PROVIDERS: KeyProvider[] = [
    { id: 'anthropic', label: 'Anthropic', description: 'Claude', variable: 'ANTHROPIC_API_KEY' },
    { id: 'openai', label: 'OpenAI', description: 'GPT', variable: 'OPENAI_API_KEY' },
    { id: 'google', label: 'Google', description: 'Gemini', variable: 'GEMINI_API_KEY' },
    {
        id: 'openai-compatible',
        label: 'OpenAI-compatible server',
        description: 'set its URL in THINKLSP_COMPATIBLE_BASE_URL or in the user file',
        variable: 'THINKLSP_COMPATIBLE_API_KEY',
    },
];

/** The pages where keys are made, by provider. */
export const KEY_PAGES: Record<string, Uri> = {
    Anthropic: Uri.parse('https://console.anthropic.com/settings/keys'),
    OpenAI: Uri.parse('https://platform.openai.com/api-keys'),
    Google: Uri.parse('https://aistudio.google.com/apikey'),
};

export async function chooseProvider(context: ExtensionContext): Promise<KeyProvider | undefined> {
    const kept = await keys(context);
    const items = PROVIDERS.map(item => (item.variable in kept ? { ...item, detail: '$(key) key stored' } : item));
    return window.showQuickPick(items, { title: 'Set an API key', placeHolder: 'Provider' });
}

/** Asks for the key of a provider, and stores or deletes it. Returns undefined if the user gave no key. */
export async function setKey(
    context: ExtensionContext,
    { label, variable }: KeyProvider,
): Promise<'stored' | 'deleted' | undefined> {
    const known = (await context.secrets.get(variable)) !== undefined;
    const key = (await inputKey(label, known))?.trim();
    if (key === undefined || (key === '' && !known)) {
        return undefined;
    }
    if (key === '') {
        await context.secrets.delete(variable);
        return 'deleted';
    }
    await context.secrets.store(variable, key);
    return 'stored';
}

/** Asks for a key. A button opens the page where keys are made. */
function inputKey(provider: string, known: boolean): Promise<string | undefined> {
    const input = window.createInputBox();
    input.title = `API key for ${provider}`;
    input.prompt = `The key is stored in the editor's secret storage.${known ? ' Leave it empty to delete the stored one.' : ''}`;
    input.password = true;
    input.ignoreFocusOut = true;
    const page = KEY_PAGES[provider];
    if (page !== undefined) {
        const tooltip = `Open the page where keys for ${provider} are made`;
        input.buttons = [{ iconPath: new ThemeIcon('link-external'), tooltip }];
        input.onDidTriggerButton(() => env.openExternal(page));
    }
    input.onDidChangeValue(text => {
        const message = 'A key must not contain spaces or line breaks.';
        input.validationMessage = /\s/.test(text.trim()) ? { message, severity: InputBoxValidationSeverity.Error } : undefined;
    });
    return new Promise(resolve => {
        input.onDidAccept(() => {
            if (input.validationMessage === undefined) {
                resolve(input.value);
                input.hide();
            }
        });
        input.onDidHide(() => {
            resolve(undefined);
            input.dispose();
        });
        input.show();
    });
}

/** Returns the stored keys by environment variable. */
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
