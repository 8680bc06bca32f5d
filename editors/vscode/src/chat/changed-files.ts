/** The cards of changed files: what the user has kept and undone of each turn, and the buttons of the files. */

import { commands } from 'vscode';
import type { Outcomes } from '../outcomes';
import type { Changes } from '../review/changes';
import { COMPARE, type HunkArgument } from '../review/marks';
import type { FromView, ToView } from './messages';

export class ChangedFiles {
    /** The last message about the files of each turn. */
    private readonly decided = new Map<string, string>();

    constructor(
        private readonly changes: Changes,
        private readonly outcomes: Outcomes,
        private readonly post: (message: ToView) => void,
    ) {}

    /** Forgets what the view was told, because it shows another conversation. */
    forget(): void {
        this.decided.clear();
    }

    /** Tells which files of a turn the user has kept and undone, if that has changed. */
    tell(turnId: string): void {
        const files = this.changes.of(turnId).map(({ sentUri: uri, hunks, kept, undone, operation }) => {
            return { uri, open: hunks.length, kept, undone, canCompare: operation !== 'delete' };
        });
        const message = JSON.stringify(files);
        if (files.length > 0 && this.decided.get(turnId) !== message) {
            this.decided.set(turnId, message);
            this.post({ kind: 'decided', turnId, files });
        }
    }

    /** Shows the change of a file that is marked, or the difference to a proposal that is pending. */
    async compare(turnId: string, uri: string): Promise<void> {
        const file = this.changes.of(turnId).find(one => one.sentUri === uri);
        const [hunk] = file?.hunks ?? [];
        if (file === undefined || hunk === undefined) {
            return this.outcomes.compare(turnId, uri);
        }
        const argument: HunkArgument = { uri: file.uri.toString(), turn: file.turn.label, number: hunk.number };
        await commands.executeCommand(COMPARE, argument);
    }

    async decide({ turnId, uri, how }: Extract<FromView, { kind: 'decide' }>): Promise<void> {
        const files = this.changes.of(turnId).filter(file => file.hunks.length > 0 && (uri === null || file.sentUri === uri));
        for (const file of files.reverse()) {
            await this.changes[how](file);
        }
    }
}
