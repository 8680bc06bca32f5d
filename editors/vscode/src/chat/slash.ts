/** Runs slash commands of the chat by calling the server's commands. */

import { randomUUID } from 'node:crypto';
import type { Client } from '../client';
import type { Applied, Choice, SkillReport, UsageReport } from '../protocol';
import type { Turns } from '../turns';
import type { ChoiceName, Offer } from './messages';
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
        private readonly undo: () => Promise<Applied>,
    ) {}

    /** Returns the result as Markdown; rejects with a message. The view itself runs `/clear` and `/sessions`. */
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
                const { applied, files } = await this.undo();
                const left = files.filter(file => file.status !== 'applied');
                const why = left.map(file => `- ${decodeURIComponent(file.uri)}: ${file.reason ?? file.status}`).join('\n');
                return applied === 'all' ? "The latest turn's edits were undone." : `Not all edits were undone:\n\n${why}`;
            }
            default:
                return SLASH_COMMANDS.map(({ usage, about }) => `- \`${usage}\`: ${about}`).join('\n');
        }
    }

    /** Returns the skills that start with the typed word, such as `/skill:re`; none if the server does not run. */
    async skills(word: string): Promise<Offer[]> {
        const report = await this.turns.ask<SkillReport>('thinklsp.skills').catch(() => undefined);
        return (report?.skills ?? [])
            .map(({ name, description }) => ({ label: `/skill:${name}`, insert: `/skill:${name} `, detail: description }))
            .filter(({ label }) => label.startsWith(word.toLowerCase()));
    }

    /** Sets a value for the session or, without one, for all later turns. Without a value, reports the current one. */
    async choose(key: ChoiceName, wish: string, sessionId: string | undefined): Promise<string> {
        const answer = await this.turns.ask<Choice>(`thinklsp.${key}`, { value: wish || undefined, sessionId });
        const { value, effective, choices, notice } = answer;
        const used = effective === null || effective === value ? '' : ` (${effective} is used)`;
        const can = wish === '' ? `Possible values: ${choices.map(choice => `\`${choice}\``).join(', ')}.` : '';
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
            throw new Error('Nothing to restore: this chat has no session yet.');
        }
        let archiveId: string | undefined = archive;
        if (archive === '') {
            const { archives } = await this.turns.ask<Shown>('thinklsp.sessions', { op: 'show', sessionId });
            archiveId = archives.at(-1)?.archiveId;
        }
        if (archiveId === undefined) {
            return 'Nothing to restore: this session was never compacted or repaired.';
        }
        const asked = { op: 'restore', sessionId, archiveId };
        const { messages } = await this.turns.ask<Restored>('thinklsp.sessions', asked);
        return `Archive \`${archiveId}\` was restored: ${messages.before} messages became ${messages.after}.`;
    }

    private async compact(instructions: string, sessionId: string | undefined): Promise<string> {
        if (sessionId === undefined) {
            throw new Error('Nothing to compact: this chat has no session yet.');
        }
        const client = await this.connect();
        const asked = { sessionId, instructions };
        const { before, after, archiveId } = await client.execute<Compacted>('thinklsp.compact', asked, randomUUID());
        const size = (side: Side): string =>
            `${side.messages} messages${side.tokens === null ? '' : `, ${tokens(side.tokens)} tokens`}`;
        return archiveId === null
            ? 'Nothing to compact.'
            : `Compacted from ${size(before)} to ${size(after)}. \`/restore ${archiveId}\` undoes it.`;
    }
}
