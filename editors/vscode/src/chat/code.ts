/** Code blocks of answers: where a block belongs in a file, and its highlighted pieces. Pure functions. */

import type { Replacement } from '../review/hunks';
import type { Token } from './messages';

const PATH = String.raw`((?:[\w.@-]+/)*[\w@-][\w.@-]*\.[a-z]\w*)`;
const IN_INFO = new RegExp(String.raw`^(?:[\w+#-]*[:\s]+)?(?:(?:title|file|filename|path)=)?["']?${PATH}["']?$`, 'i');
const IN_COMMENT = new RegExp(String.raw`^\s*(?:#|//|--|;|/\*|<!--)\s*(?:file(?:name)?:\s*)?${PATH}\s*(?:\*/|-->)?\s*$`, 'i');
const SHELLS = /^(?:bash|sh|shell|zsh|fish|console|shellsession|powershell|pwsh|ps1|bat|cmd)$/i;
/** Control characters, and those that change the direction of a text. */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;
const TAG = /<span class="([^"]*)">|<\/span>|&(?:amp|lt|gt|quot|#39|#x27);|[^<&]+|[<&]/g;
const ENTITIES: Record<string, string> = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&#x27;': "'" };

/** Returns the path that a block names in its info string or in a comment on its first line, and the rest of its code. */
export function namedFile(info: string, code: string): { path: string | undefined; code: string } {
    const path = IN_INFO.exec(info.trim())?.[1];
    const end = code.indexOf('\n');
    const commented = IN_COMMENT.exec(end < 0 ? code : code.slice(0, end))?.[1];
    if (commented !== undefined && (path === undefined || path === commented)) {
        return { path: commented, code: end < 0 ? '' : code.slice(end + 1).replace(/^\n/, '') };
    }
    return { path, code };
}

/** Finds the lines of a text that a block of code replaces: the block that starts with the same line, if there is only one. */
export function placeCode(text: string, code: string): Replacement | undefined {
    const lines = text.split('\n');
    const written = code.replace(/\n+$/, '').split('\n');
    const anchor = written.findIndex(line => line.trim() !== '');
    const wanted = written[anchor]?.trim();
    const starts = lines.flatMap((line, number) => (line.trim() === wanted && wanted !== '' ? [number] : []));
    const [start] = starts;
    if (wanted === undefined || start === undefined || starts.length > 1) {
        return undefined;
    }
    const indent = indentOf(lines[start] ?? '');
    const own = indentOf(written[anchor] ?? '');
    const end = endOf(lines, start, indent);
    const moved = written.slice(anchor).map(line => (line.trim() === '' ? '' : indent + (line.startsWith(own) ? line.slice(own.length) : line)));
    const offset = (number: number) => lines.slice(0, number).reduce((sum, line) => sum + line.length + 1, 0);
    return { start: offset(start), end: offset(end) + (lines[end]?.length ?? 0), text: moved.join('\n') };
}

/** Returns the last line of a block: lines with more indentation follow its first line, then perhaps a closing line. */
function endOf(lines: readonly string[], start: number, indent: string): number {
    let end = start;
    for (let number = start + 1; number < lines.length; number += 1) {
        const line = lines[number] ?? '';
        const isInside = line.startsWith(indent) && /^\s/.test(line.slice(indent.length));
        const isClosing = indentOf(line) === indent && /^(?:[}\])]|end\b)/.test(line.trim());
        if (isInside || isClosing) {
            end = number;
        }
        if (isClosing || (line.trim() !== '' && !isInside)) {
            break;
        }
    }
    return end;
}

function indentOf(line: string): string {
    return /^\s*/.exec(line)?.[0] ?? '';
}

/** Returns the command of a shell's code block if it has exactly one line, without the prompt sign of a transcript. A second
 * line would run the first one at once, and control characters could do anything. */
export function terminalLine(language: string, code: string): string | undefined {
    const line = code.trim().replace(/^[$>] /, '');
    return SHELLS.test(language) && line !== '' && !UNSAFE.test(line) ? line : undefined;
}

/** Parses the HTML of the editor's highlighter, of which only the text and the class names are used. */
export function parseTokens(html: string, code: string): Token[] | undefined {
    const inside = /<code[^>]*>([\s\S]*)<\/code>/.exec(html)?.[1]?.replace(/<\/?(?:div|br)[^>]*>/g, '') ?? '';
    const open: string[] = [];
    const tokens: Token[] = [];
    for (const [piece, style] of inside.matchAll(TAG)) {
        if (style !== undefined) {
            open.push(/hljs-([a-z_]+)/.exec(style)?.[1] ?? '');
        } else if (piece === '</span>') {
            open.pop();
        } else {
            const style = open.findLast(one => one !== '') ?? '';
            const text = ENTITIES[piece] ?? piece;
            const last = tokens.at(-1);
            if (last?.style === style) {
                tokens[tokens.length - 1] = { text: last.text + text, style };
            } else {
                tokens.push({ text, style });
            }
        }
    }
    const shown = tokens.map(token => token.text).join('');
    return shown.trimEnd() === code.trimEnd() ? tokens : undefined;
}
