/** A session as the server exports it, as turns to show. Pure. */

import { type Part, type Turn, isExported, isPlan } from './messages';
import { isRecord } from './shape';
import { PLAN } from './turn';

type PlanEntries = Turn['plan'];

const EXCERPT = /(?:\n\n)?^([^\n]*), lines (\d+)-(\d+) of \d+:\n<excerpt>\n[\s\S]*?\n<\/excerpt>/gm;
// What `@diagnostics` stood for.
const DIAGNOSTICS = /\n\nDiagnostics of [^\n]*:\n(?:- line [^\n]*(?:\n|$))+/;
// What the server adds to a prompt for one turn, and what it says to the model in the user's place.
const FOR_THE_TURN = /\n\nThis turn only (?:reads|plans): [^\n]*$/;
const IN_THE_USERS_PLACE = /^Your last message held only thinking\. /;

interface ToolDetails {
    input: string;
    output: string;
}

export interface History {
    title: string;
    turns: Turn[];
    /** By the id of the call. */
    tools: Map<string, ToolDetails>;
}

/** Of the text that `thinklsp.sessions` op `export` answers with in the format `json`; empty where it is none. */
export function history(exported: string): History {
    const value = parsed(exported);
    const found: History = { title: '', turns: [], tools: new Map() };
    if (!isExported(value)) {
        return found;
    }
    found.title = value.title;
    let parts: Part[] = [];
    for (const message of value.messages) {
        const blocks = message.blocks.filter(isRecord);
        const said = message.role === 'user' ? text(blocks) : '';
        if (said !== '' && !IN_THE_USERS_PLACE.test(said)) {
            parts = [];
            found.turns.push(turn(said, parts));
        }
        for (const block of blocks) {
            take(block, message.role, parts, found.tools);
            const plan = planOf(block);
            const last = found.turns.at(-1);
            if (plan !== undefined && last !== undefined) {
                found.turns[found.turns.length - 1] = { ...last, plan };
            }
        }
    }
    return found;
}

function take(block: Record<string, unknown>, role: string, parts: Part[], tools: History['tools']): void {
    const { kind, id, name, input, text: said } = block;
    if (kind === 'text' && role === 'assistant' && typeof said === 'string' && said.trim() !== '') {
        parts.push({ kind: 'text', text: said });
    } else if (kind === 'tool_use' && typeof id === 'string' && typeof name === 'string' && name !== PLAN) {
        parts.push({ kind: 'tool', id, name, title: title(name, input), status: 'completed' });
        tools.set(id, { input: shown(input), output: '' });
    } else if (kind === 'tool_result' && typeof id === 'string' && typeof said === 'string') {
        tools.set(id, { input: tools.get(id)?.input ?? '', output: said });
        const at = parts.findLastIndex(part => part.kind === 'tool' && part.id === id);
        const call = parts[at];
        if (call?.kind === 'tool' && block['is_error'] === true) {
            parts[at] = { ...call, status: 'failed' };
        }
    }
}

function planOf({ kind, name, input }: Record<string, unknown>): PlanEntries | undefined {
    const entries = kind === 'tool_use' && name === PLAN && isRecord(input) ? input['entries'] : undefined;
    return isPlan(entries) ? entries : undefined;
}

function turn(said: string, parts: Part[]): Turn {
    const attachments = [...said.matchAll(EXCERPT)].map(([, path, first, last]) => `${path}:${first}${last === first ? '' : `-${last}`}`);
    const prompt = said.replace(EXCERPT, '').replace(FOR_THE_TURN, '').replace(DIAGNOSTICS, '').trim();
    return {
        prompt,
        attachments: [...new Set(attachments)],
        parts,
        plan: [],
        usage: null,
        turnId: null,
        stopReason: null,
        stepParts: [],
        edits: null,
        running: false,
    };
}

/** What the user wrote. Notes of the server for the model stand before it. */
function text(blocks: Record<string, unknown>[]): string {
    const said = blocks.findLast(block => block['kind'] === 'text')?.['text'];
    return typeof said === 'string' ? said : '';
}

/** As the server names a call while it runs: `read src/app.py`. */
function title(name: string, input: unknown): string {
    const verb = name.split('_')[0] ?? name;
    const given = isRecord(input) ? input : {};
    const object = given['path'] ?? given['pattern'] ?? given['question'];
    return typeof object === 'string' ? `${verb} ${object}` : verb;
}

function shown(input: unknown): string {
    return input === undefined || input === null ? '' : JSON.stringify(input, null, 2);
}

function parsed(text: string): unknown {
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}
