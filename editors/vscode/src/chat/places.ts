/** Finds places like `src/app.py:10` in texts, and the findings of a review that are written with them. Pure functions. */

import type { ReportedFinding } from '../protocol';

/** A file name has an extension that starts with a letter, so that `127.0.0.1:8080` is no place. */
const PLACE = /(?<![\w/:.@\\-])((?:[\w.@-]+\/)*[\w@-][\w.@-]*\.[a-z]\w*):(\d{1,7})(?:-\d{1,7}|:\d{1,7})?(?![\w/])/gi;
const FINDING = /^[*+-] +`?((?:[^\s:`]+\/)*[^\s:`]+):(\d{1,7})(?:-(\d{1,7}))?`?(?: *[:–—-]+ +| +)(?:\*{0,2}(error|warning|note|info)\*{0,2}: *)?/i;
const SEVERITIES = { error: 1, warning: 2, note: 3, info: 3 } as const;

/** A finding with the path as the model wrote it, and lines counted from 0. */
export interface WrittenFinding extends Pick<ReportedFinding, 'severity' | 'message'> {
    path: string;
    lines: readonly [number, number];
}

/** A piece of a text: a place, or the text between places. */
export interface Piece {
    text: string;
    isPlace: boolean;
}

export function splitPlaces(text: string): Piece[] {
    const pieces: Piece[] = [];
    let end = 0;
    for (const match of text.matchAll(PLACE)) {
        pieces.push({ text: text.slice(end, match.index), isPlace: false }, { text: match[0], isPlace: true });
        end = match.index + match[0].length;
    }
    return [...pieces, { text: text.slice(end), isPlace: false }].filter(piece => piece.text !== '');
}

/** Parses an address like `app.py:10-20`, `app.py:10:5` or `app.py#L10-L20`. Lines are counted from 0. */
export function parsePlace(address: string): { path: string; lines: readonly [number, number] | undefined } {
    const [, path = '', first, last] = /^(.*?)(?:[:#]L?(\d{1,7})(?:-L?(\d{1,7})|:\d{1,7})?)?(?:#.*)?$/s.exec(address) ?? [];
    if (first === undefined) {
        return { path, lines: undefined };
    }
    const start = Math.max(0, Number(first) - 1);
    return { path, lines: [start, Math.max(start, Number(last ?? first) - 1)] };
}

/** Parses the list items of a review. */
export function parseFindings(answer: string): WrittenFinding[] {
    const found: WrittenFinding[] = [];
    let isOpen = false;
    for (const line of answer.split('\n')) {
        const match = FINDING.exec(line);
        const last = found.at(-1);
        if (match !== null) {
            const [whole, path = '', first, end, word = 'warning'] = match;
            const start = Math.max(0, Number(first) - 1);
            const severity = SEVERITIES[word.toLowerCase() as keyof typeof SEVERITIES];
            const lines = [start, Math.max(start, Number(end ?? first) - 1)] as const;
            found.push({ path, lines, severity, message: line.slice(whole.length).trim() });
            isOpen = true;
        } else if (isOpen && last !== undefined && /^\s+\S/.test(line)) {
            last.message = `${last.message} ${line.trim()}`.trim();
        } else {
            isOpen = false;
        }
    }
    return found;
}
