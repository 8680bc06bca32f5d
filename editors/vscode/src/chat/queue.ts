/** The prompts that wait for the running turn. */

import type { Running } from '../turns';
import type { ToView } from './messages';

/** Until the session of the running turn is known, a queued prompt is not sent and `running` is undefined. */
export interface Queued {
    id: number;
    prompt: string;
    running: Running | undefined;
}

export class Queue {
    private prompts: Queued[] = [];
    private count = 0;

    constructor(private readonly post: (message: ToView) => void) {}

    add(prompt: string): Queued {
        this.count += 1;
        const queued: Queued = { id: this.count, prompt, running: undefined };
        this.prompts.push(queued);
        this.tell();
        return queued;
    }

    has(queued: Queued): boolean {
        return this.prompts.includes(queued);
    }

    /** Removes a prompt; returns undefined if a turn has already taken it. */
    remove(id: number): Queued | undefined {
        const queued = this.prompts.find(one => one.id === id);
        this.prompts = this.prompts.filter(one => one !== queued);
        this.tell();
        return queued;
    }

    /** Forgets the prompts, which the server continues with. */
    leave(): void {
        this.prompts = [];
    }

    tell(): void {
        this.post({ kind: 'queued', prompts: this.prompts.map(({ id, prompt }) => ({ id, prompt })) });
    }
}
