/** How turns of this window ended. The server's history holds what was said, not which edit still waits. */

import type { TurnResult } from '../protocol';
import type { ChangedFile, Turn } from './messages';
import { applied } from './turn';

export class Results {
    private readonly bySession = new Map<string, Map<number, Turn>>();

    /** The last one of these turns ended like this, if it is the one with this prompt: one that was stopped before its
     * first answer is not stored. */
    keep(turns: readonly Turn[], prompt: string, { sessionId, turnId, stopReason, edits, usage }: TurnResult): void {
        const last = turns.at(-1);
        if (last?.prompt === prompt.trim()) {
            const kept = this.bySession.get(sessionId) ?? new Map<number, Turn>();
            kept.set(turns.length - 1, { ...last, turnId, stopReason, edits, usage });
            this.bySession.set(sessionId, kept);
        }
    }

    applied(turnId: string, files: readonly ChangedFile[]): void {
        for (const kept of this.bySession.values()) {
            for (const [at, turn] of kept) {
                if (turn.turnId === turnId) {
                    kept.set(at, applied(turn, files));
                }
            }
        }
    }

    /** The turns of a session with what is known of their ends. One that has moved in a compaction is left as it is. */
    onto(sessionId: string, turns: readonly Turn[]): Turn[] {
        return turns.map((turn, at) => {
            const kept = this.bySession.get(sessionId)?.get(at);
            if (kept?.prompt !== turn.prompt) {
                return turn;
            }
            const { turnId, stopReason, edits, usage } = kept;
            return { ...turn, turnId, stopReason, edits, usage };
        });
    }
}
