/** The results of this window's turns. The server's history has the messages but not which edits are pending. */

import type { TurnResult } from '../protocol';
import type { Place } from './context';
import type { StoredTurn } from './history';
import type { ChangedFile, Turn } from './messages';
import { applied } from './turn';

type Kept = Partial<Pick<Turn, 'prompt' | 'attachments'>> & Pick<Turn, 'stopReason' | 'edits' | 'usage'>;

export class Results {
    private readonly byTurn = new Map<string, Kept>();
    /** What was sent with a prompt. Prompts that joined a turn have the same result. */
    private readonly sent = new Map<string, readonly Place[]>();

    /** Records how a turn ended; without a result it failed. `shown`: what the view shows instead of the stored prompt, which
     * has other words if a code action started the turn. */
    keep(turnId: string, result: TurnResult | undefined, shown: Partial<Pick<Turn, 'prompt' | 'attachments'>> = {}): void {
        const { stopReason, edits, usage } = result ?? { stopReason: 'error', edits: null, usage: null };
        this.byTurn.set(turnId, { ...shown, stopReason, edits, usage });
    }

    keepPlaces(turnId: string, prompt: string, places: readonly Place[]): void {
        this.sent.set(`${turnId} ${prompt.trim()}`, places);
    }

    /** Returns what was sent with a prompt; undefined if another window sent it. */
    places({ turnId, prompt }: StoredTurn): readonly Place[] | undefined {
        return this.sent.get(`${turnId} ${prompt}`);
    }

    applied(turnId: string, files: readonly ChangedFile[]): void {
        const kept = this.byTurn.get(turnId);
        if (kept !== undefined) {
            this.byTurn.set(turnId, applied(kept, files));
        }
    }

    files(turnId: string): readonly ChangedFile[] {
        return this.byTurn.get(turnId)?.edits?.files ?? [];
    }

    /** Returns turns with what this window knows of them. */
    onto(turns: readonly StoredTurn[]): StoredTurn[] {
        return turns.map(turn => {
            const kept = turn.turnId === null ? undefined : this.byTurn.get(turn.turnId);
            return { ...turn, ...kept, usage: kept?.usage ?? turn.usage };
        });
    }
}
