/** The hunks of an edit in one text: where they are, what they replaced, and how typing moves them. Pure functions. */

/** A replacement of `[start, end)` in a text, in UTF-16 units. */
export interface Replacement {
    start: number;
    end: number;
    text: string;
}

export interface Hunk {
    /** The number of the text edit in the workspace edit. */
    readonly number: number;
    /** The range of the new text in the current text. `end` is exclusive. */
    readonly start: number;
    readonly end: number;
    /** The text that the hunk replaced. */
    readonly before: string;
}

/** Returns the hunks of an edit, in the order of the text. `text` is the text before the edit. */
export function placeHunks(text: string, edits: readonly Replacement[]): Hunk[] {
    const numbered = edits.map((edit, number) => ({ ...edit, number })).sort((one, other) => one.start - other.start);
    let delta = 0;
    return numbered.map(({ start, end, text: added, number }) => {
        const place = start + delta;
        delta += added.length - (end - start);
        return { number, start: place, end: place + added.length, before: text.slice(start, end) };
    });
}

/** Applies the edits, which must not overlap. */
export function applyEdits(text: string, edits: readonly Replacement[]): string {
    const parts: string[] = [];
    let end = 0;
    for (const edit of [...edits].sort((one, other) => one.start - other.start)) {
        parts.push(text.slice(end, edit.start), edit.text);
        end = edit.end;
    }
    return [...parts, text.slice(end)].join('');
}

/** Returns the hunk after a change of the text. A change that touches the hunk becomes part of it. */
export function moveHunk(hunk: Hunk, { start, end, text }: Replacement): Hunk {
    const delta = text.length - (end - start);
    if (end < hunk.start || (end === hunk.start && start < end)) {
        return { ...hunk, start: hunk.start + delta, end: hunk.end + delta };
    }
    if (start > hunk.end || (start === hunk.end && hunk.start < hunk.end)) {
        return hunk;
    }
    if (start === end && start === hunk.start && hunk.start < hunk.end) {
        return { ...hunk, start: hunk.start + delta, end: hunk.end + delta };
    }
    return { ...hunk, start: Math.min(start, hunk.start), end: Math.max(end, hunk.end) + delta };
}

/** Returns whether a change touches the text of a hunk. */
export function touches(hunk: Hunk, { start, end }: Replacement): boolean {
    return start < hunk.end && end > hunk.start;
}

/** Returns the hunks, in the order of the text, that one change has replaced together: their places are lost. */
export function findLost(hunks: readonly Hunk[]): Hunk[] {
    const placed = hunks.filter(hunk => hunk.start >= 0);
    const overlap = (one: Hunk | undefined, other: Hunk | undefined) => one !== undefined && other !== undefined && one.end > other.start;
    return placed.filter((hunk, index) => overlap(placed[index - 1], hunk) || overlap(hunk, placed[index + 1]));
}

/** Returns the one replacement that makes a text of another. */
export function findDifference(from: string, to: string): Replacement {
    const shorter = Math.min(from.length, to.length);
    let start = 0;
    while (start < shorter && from[start] === to[start]) {
        start++;
    }
    let tail = 0;
    while (tail < shorter - start && from[from.length - 1 - tail] === to[to.length - 1 - tail]) {
        tail++;
    }
    return { start, end: from.length - tail, text: to.slice(start, to.length - tail) };
}

/** Returns whether two texts differ at most in their line ends and in white space before them, which editors change on save. */
export function isSameText(one: string, other: string): boolean {
    const trimmed = (text: string) => text.split(/\r?\n/).map(line => line.trimEnd()).join('\n').trimEnd();
    return trimmed(one) === trimmed(other);
}
