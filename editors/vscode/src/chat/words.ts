/** Parses prompts: `@` references, slash commands, and the word at the caret. Pure functions. */

const REFERENCE = /(?<![\w@])@([^\s:@]+)(?::L?(\d{1,9})(?:-L?(\d{1,9}))?)?/g;
const TYPED = /(?:^|\s)(@[^\s@]*|\/(?:skill:[a-z0-9-]*|[a-z-]*))$/i;
const COMMAND = /^\/([a-z]+(?:-[a-z]+)*)(?:[ \t]+(.*?))?[ \t]*$/is;

/** Matches `@path` and `@path:10-20`, with lines counted from 1. */
export interface Mention {
    path: string;
    first?: number;
    last?: number;
}

export const SPECIAL = ['selection', 'diagnostics'] as const;

export function mentions(prompt: string): Mention[] {
    const found = new Map<string, Mention>();
    for (const [, word = '', first, last] of prompt.matchAll(REFERENCE)) {
        const path = word.replace(/[.,;!?)]+$/, '');
        if (path !== '') {
            const lines = first === undefined ? {} : { first: Number(first), last: Number(last ?? first) };
            found.set(`${path}:${first}-${last}`, { path, ...lines });
        }
    }
    return [...found.values()];
}

export interface SlashCommand {
    name: string;
    usage: string;
    about: string;
}

export const SLASH_COMMANDS: readonly SlashCommand[] = [
    { name: 'clear', usage: '/clear', about: 'start a new chat' },
    { name: 'compact', usage: '/compact [instructions]', about: 'compact the conversation' },
    { name: 'effort', usage: '/effort [level]', about: 'reasoning effort' },
    { name: 'help', usage: '/help', about: 'show this list' },
    { name: 'model', usage: '/model [id]', about: 'choose the model' },
    { name: 'restore', usage: '/restore [archive]', about: 'undo a compaction or a repair (default: the newest)' },
    { name: 'sessions', usage: '/sessions', about: "list this workspace's sessions" },
    { name: 'skill', usage: '/skill:NAME [words]', about: 'follow a skill in this prompt' },
    { name: 'think', usage: '/think [mode]', about: 'off, normal, ultra, adaptive or manual N' },
    { name: 'undo', usage: '/undo', about: "undo the latest turn's edits" },
    { name: 'usage', usage: '/usage', about: "show this session's usage" },
];

export type Slashed = { name: string; argument: string } | { problem: string };

/** Returns the slash command of a prompt; null for other prompts, also for one that starts with a path. */
export function slashed(prompt: string): Slashed | null {
    const match = COMMAND.exec(prompt.trimEnd());
    if (match === null) {
        return null;
    }
    const name = (match[1] ?? '').toLowerCase();
    if (SLASH_COMMANDS.some(command => command.name === name)) {
        return { name, argument: (match[2] ?? '').trim() };
    }
    return { problem: `Unknown command \`/${name.slice(0, 40)}\`. To send it as text, start the prompt with a space.` };
}

/** Returns the word before the caret that can be completed. A slash counts only at the start of the prompt. */
export function typed(text: string, caret: number): { word: string; start: number } | null {
    const word = TYPED.exec(text.slice(0, caret))?.[1];
    if (word === undefined) {
        return null;
    }
    const start = caret - word.length;
    return word.startsWith('/') && start > 0 ? null : { word, start };
}
