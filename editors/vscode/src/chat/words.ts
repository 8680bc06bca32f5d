/** What the words of a prompt mean: `@` references, slash commands, and which of them is being typed. Pure. */

const REFERENCE = /(?<![\w@])@([^\s:@]+)(?::L?(\d{1,9})(?:-L?(\d{1,9}))?)?/g;
const TYPED = /(?:^|\s)(@[^\s@]*|\/[a-z-]*)$/i;
const COMMAND = /^\/([a-z]+(?:-[a-z]+)*)(?:[ \t]+(.*?))?[ \t]*$/is;

/** `@path` or `@path:10-20`; lines count from 1. */
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
    { name: 'clear', usage: '/clear', about: 'begins a new chat' },
    { name: 'compact', usage: '/compact [instructions]', about: 'shortens the conversation and keeps its thread' },
    { name: 'effort', usage: '/effort [level]', about: 'how hard the model tries' },
    { name: 'help', usage: '/help', about: 'this list' },
    { name: 'model', usage: '/model [id]', about: 'which model answers' },
    { name: 'restore', usage: '/restore [archive]', about: 'undoes a compaction or a repair, by default the newest' },
    { name: 'sessions', usage: '/sessions', about: 'the sessions of this workspace' },
    { name: 'think', usage: '/think [off|normal|ultra|adaptive|manual N]', about: 'how the model thinks' },
    { name: 'undo', usage: '/undo', about: 'takes back what the latest turn changed' },
    { name: 'usage', usage: '/usage', about: 'what this session has used' },
];

export type Slashed = { name: string; argument: string } | { problem: string };

/** The command that a prompt is; null for a prompt that is none, as one that begins with a path. */
export function slashed(prompt: string): Slashed | null {
    const match = COMMAND.exec(prompt.trimEnd());
    if (match === null) {
        return null;
    }
    const name = (match[1] ?? '').toLowerCase();
    if (SLASH_COMMANDS.some(command => command.name === name)) {
        return { name, argument: (match[2] ?? '').trim() };
    }
    return { problem: `There is no command \`/${name.slice(0, 40)}\`. Begin with a space to send it as text.` };
}

/** The word before the caret that can be completed. A slash counts only at the beginning of the prompt. */
export function typed(text: string, caret: number): { word: string; start: number } | null {
    const word = TYPED.exec(text.slice(0, caret))?.[1];
    if (word === undefined) {
        return null;
    }
    const start = caret - word.length;
    return word.startsWith('/') && start > 0 ? null : { word, start };
}
