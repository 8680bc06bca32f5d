/** What slash commands do in the chat: what the server's commands of the same meaning do. */

import { randomUUID } from 'node:crypto';
import type { Client } from '../client';
import type { Applied, Choice, UsageReport } from '../protocol';
import type { Turns } from '../turns';
import type { ChoiceName } from './messages';
import { tokens, used } from './figures';
import { SLASH_COMMANDS } from './words';

interface Side {
    messages: number;
    tokens: number | null;
}

interface Compacted {
    before: Side;
    after: Side;
    archiveId: string | null;
}

interface Shown {
    archives: { archiveId: string }[];
}

interface Restored {
    messages: { before: number; after: number };
}

const KEYS: Record<string, ChoiceName> = { effort: 'effort', think: 'thinking', model: 'model' };

export class SlashCommands {
    constructor(
        private readonly turns: Turns,
        private readonly connect: () => Promise<Client>,
    ) {}

    /** The outcome as Markdown. Rejects with a sentence where it cannot be done. `/clear` and `/sessions` are the view's. */
    async run(name: string, argument: string, sessionId: string | undefined): Promise<string> {
        const key = KEYS[name];
        if (key !== undefined) {
            return this.choose(key, argument, sessionId);
        }
        switch (name) {
            case 'compact':
                return this.compact(argument, sessionId);
            case 'restore':
                return this.restore(argument, sessionId);
            case 'usage':
                return this.usage(sessionId);
            case 'undo': {
                const { applied, files } = await this.turns.ask<Applied>('thinklsp.undo');
                const left = files.filter(file => file.status !== 'applied');
                const why = left.map(file => `- ${decodeURIComponent(file.uri)}: ${file.reason ?? file.status}`).join('\n');
                return applied === 'all' ? 'What the latest turn changed was taken back.' : `Not everything was taken back:\n\n${why}`;
            }
            default:
                return SLASH_COMMANDS.map(({ usage, about }) => `- \`${usage}\`: ${about}`).join('\n');
        }
    }

    /** For the session, where there is one, else for everything from now on; without a value it only tells. */
    async choose(key: ChoiceName, wish: string, sessionId: string | undefined): Promise<string> {
        const answer = await this.turns.ask<Choice>(`thinklsp.${key}`, { value: wish || undefined, sessionId });
        const { value, effective, choices, notice } = answer;
        const used = effective === null || effective === value ? '' : ` (${effective} is used)`;
        const can = wish === '' ? `It can be ${choices.map(choice => `\`${choice}\``).join(', ')}.` : '';
        const now = `${key[0]?.toUpperCase()}${key.slice(1)}: ${value ?? 'the default'}${used}.`;
        return [now, can, notice ?? ''].filter(text => text !== '').join(' ');
    }

    private async usage(sessionId: string | undefined): Promise<string> {
        const { total, today } = await this.turns.ask<UsageReport>('thinklsp.usage', { sessionId });
        const here = sessionId === undefined ? 'The newest session' : 'This session';
        return `${here}: ${used(total) || 'nothing yet'}.\n\nToday, all sessions: ${used(today) || 'nothing yet'}.`;
    }

    private async restore(archive: string, sessionId: string | undefined): Promise<string> {
        if (sessionId === undefined) {
            throw new Error('There is nothing to restore: this chat has no session yet.');
        }
        let archiveId: string | undefined = archive;
        if (archive === '') {
            const { archives } = await this.turns.ask<Shown>('thinklsp.sessions', { op: 'show', sessionId });
            archiveId = archives.at(-1)?.archiveId;
        }
        if (archiveId === undefined) {
            return 'This session has no archive: no compaction or repair can be undone.';
        }
        const asked = { op: 'restore', sessionId, archiveId };
        const { messages } = await this.turns.ask<Restored>('thinklsp.sessions', asked);
        return `Archive \`${archiveId}\` is the conversation again: ${messages.before} messages became ${messages.after}.`;
    }

    private async compact(instructions: string, sessionId: string | undefined): Promise<string> {
        if (sessionId === undefined) {
            throw new Error('There is nothing to shorten: this chat has no session yet.');
        }
        const client = await this.connect();
        const asked = { sessionId, instructions };
        const { before, after, archiveId } = await client.execute<Compacted>('thinklsp.compact', asked, randomUUID());
        const size = (side: Side): string =>
            `${side.messages} messages${side.tokens === null ? '' : `, ${tokens(side.tokens)} tokens`}`;
        return archiveId === null
            ? 'There was nothing to shorten.'
            : `Shortened from ${size(before)} to ${size(after)}. \`/restore ${archiveId}\` undoes it.`;
    }
}
