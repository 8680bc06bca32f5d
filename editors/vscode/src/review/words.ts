/** The words of a review. Pure functions. */

const MAX_LINE = 80;

/** Returns the beginning of a Markdown text as one plain line. */
export function plainLine(markdown: string, length = MAX_LINE): string {
    const plain = markdown.replace(/```[\s\S]*?(```|$)/g, ' … ').replace(/[*`#]/g, '');
    const line = plain.trim().replace(/\s+/g, ' ');
    return line.length <= length ? line : `${line.slice(0, length - 1).trimEnd()}…`;
}

/** Describes the outcome of a turn's tests; empty if none ran. */
export function testsOf(verified: { command: string; passed: number; failed: number } | null): string {
    if (verified === null) {
        return '';
    }
    const { passed, failed } = verified;
    return failed === 0 ? `Tests: ${passed} passed.` : `Tests: ${failed} failed, ${passed} passed.`;
}

/** Returns the page above the changes: the model's answer and the outcome of the tests; empty without both. */
export function summaryOf(text: string, tests: string): string {
    return [text, tests].filter(part => part.trim() !== '').join('\n\n');
}

export function countChanges(changes: number, files: number): string {
    return `${changes} ${changes === 1 ? 'change' : 'changes'} in ${files} ${files === 1 ? 'file' : 'files'}`;
}

export function nameOf(uri: string): string {
    return decodeURIComponent(uri.slice(uri.lastIndexOf('/') + 1));
}
