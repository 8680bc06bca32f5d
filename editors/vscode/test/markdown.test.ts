import assert from 'node:assert/strict';
import { test } from 'node:test';
import MarkdownIt from 'markdown-it';
import { Stream, parsed } from '../webview/markdown';

const { renderer, options } = new MarkdownIt();
const html = (source: string) => renderer.render(parsed(source), options, {});

const PIECES = [
    'word', ' ', '\n', '\n\n', '- ', '  - ', '1. ', '2. ', '+', '* ', '# ', '#', '---\n', '===\n', '```', '```py\n', '~~~\n', '> ',
    '    ', '\t', '| a | b |\n', '|---|---|\n', '**bold**', '*', '_', '`code`', '[a](http://b)', '![i](http://c)', '<b>', '\\', '&amp;',
    '[a]: http://d\n', '[a]', '\r\n', '\r', 'é', '😀', '\u0000', '1', '.', ')', '-', '|', ':',
];

/** Returns reproducible random numbers. */
function chance(seed: number): (below: number) => number {
    let state = seed;
    return below => {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
    };
}

test('whatever the pieces, the blocks are those of the whole', () => {
    for (let seed = 1; seed <= 20_000; seed += 1) {
        const below = chance(seed);
        const source = Array.from({ length: 1 + below(30) }, () => PIECES[below(PIECES.length)]).join('');
        const stream = new Stream();
        const closed: string[] = [];
        for (let at = 0; at < source.length; ) {
            const end = at + 1 + below(12);
            closed.push(...stream.push(source.slice(at, end)));
            at = end;
        }
        const whole = source.replaceAll('\r', '');
        assert.equal([...closed, stream.open].join(''), whole);
        assert.equal([...closed, stream.open].map(html).join(''), html(whole), JSON.stringify({ seed, source }));
    }
});

test('the cost is linear, in the number of blocks and in the length of one', () => {
    const paragraphs = 'A paragraph of some words.\n\n'.repeat(4_000);
    const code = '```\n' + 'let it = be;\n'.repeat(8_000);
    const items = '- an item of a list\n'.repeat(5_000);
    for (const source of [paragraphs, code, items]) {
        const stream = new Stream();
        for (let at = 0; at < source.length; at += 20) {
            stream.push(source.slice(at, at + 20));
        }
        assert.ok(stream.examined < 8 * source.length, `${stream.examined} of ${source.length}`);
    }
});
