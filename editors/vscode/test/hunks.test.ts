/** The hunks of an edit: their places, and how typing moves them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Replacement, applyEdits, findDifference, findLost, isSameText, moveHunk, placeHunks, touches } from '../src/review/hunks';

const TEXT = 'one\ntwo\nthree\nfour\n';
const EDITS: Replacement[] = [
    { start: 4, end: 8, text: 'TWO\n2\n' },
    { start: 14, end: 14, text: 'new\n' },
    { start: 14, end: 19, text: '' },
];

test('each hunk has the range of its new text and the text that it replaced', () => {
    const after = applyEdits(TEXT, EDITS);
    const hunks = placeHunks(TEXT, EDITS);
    assert.equal(after, 'one\nTWO\n2\nthree\nnew\n');
    assert.deepEqual(
        hunks.map(hunk => [after.slice(hunk.start, hunk.end), hunk.before]),
        [
            ['TWO\n2\n', 'two\n'],
            ['new\n', ''],
            ['', 'four\n'],
        ],
    );
});

test('undoing every hunk from the end gives the former text', () => {
    let text = applyEdits(TEXT, EDITS);
    for (const hunk of placeHunks(TEXT, EDITS).reverse()) {
        text = text.slice(0, hunk.start) + hunk.before + text.slice(hunk.end);
    }
    assert.equal(text, TEXT);
});

test('random edits and typing keep the undo of untouched hunks exact', () => {
    let seed = 7;
    const random = (limit: number) => (seed = (seed * 48_271) % 2_147_483_647) % limit;
    for (let round = 0; round < 2_000; round++) {
        const before = Array.from({ length: random(30) }, () => 'ab\n'[random(3)]).join('');
        const start = random(before.length + 1);
        const edit = { start, end: start + random(before.length - start + 1), text: 'xy\n'.slice(0, random(4)) };
        const [hunk] = placeHunks(before, [edit]);
        const now = applyEdits(before, [edit]);
        assert.ok(hunk);
        const at = random(now.length + 1);
        const typed = { start: at, end: at + random(now.length - at + 1), text: 'q'.repeat(random(3)) };
        const inside = typed.start >= hunk.start && typed.end <= hunk.end;
        if (!touches(hunk, typed) || inside) {
            const moved = moveHunk(hunk, typed);
            const text = applyEdits(now, [typed]);
            const undone = text.slice(0, moved.start) + moved.before + text.slice(moved.end);
            if (typed.end <= hunk.start && typed.start < hunk.start) {
                assert.equal(undone, applyEdits(before, [typed]));
            } else if (typed.start > hunk.end) {
                const shift = before.length - now.length;
                assert.equal(undone, applyEdits(before, [{ ...typed, start: typed.start + shift, end: typed.end + shift }]));
            } else if (inside && typed.start > hunk.start && typed.start < hunk.end) {
                assert.equal(undone, before);
            }
        }
    }
});

test('a whole-file operation does not move', () => {
    const operation = { number: 0, start: -1, end: -1, before: '' };
    assert.deepEqual(moveHunk(operation, { start: 0, end: 3, text: 'x' }), operation);
});

test('hunks that one change replaced together are lost', () => {
    const hunks = placeHunks(TEXT, EDITS);
    assert.deepEqual(findLost(hunks), []);
    const pasted = { start: 0, end: 9, text: 'everything' };
    assert.deepEqual(
        findLost(hunks.map(hunk => moveHunk(hunk, pasted))).map(hunk => hunk.number),
        [],
    );
    const both = { start: 0, end: 20, text: 'everything' };
    assert.deepEqual(
        findLost(hunks.map(hunk => moveHunk(hunk, both))).map(hunk => hunk.number),
        [0, 1],
    );
});

test('the difference of two texts makes one of the other', () => {
    for (const [from, to] of [
        ['', 'abc'],
        ['abc', ''],
        ['aaa', 'aa'],
        ['one two', 'one and two'],
        ['same', 'same'],
    ] as const) {
        assert.equal(applyEdits(from, [findDifference(from, to)]), to);
    }
    assert.deepEqual(findDifference('one two three', 'one 2 three'), { start: 4, end: 7, text: '2' });
});

test('line ends and white space before them do not make another text', () => {
    assert.ok(isSameText('one  \n two\n', 'one\r\n two\t\n\n'));
    assert.ok(isSameText('', '\n'));
    assert.ok(!isSameText('one\n two', 'one\ntwo'));
    assert.ok(!isSameText('one\n\ntwo', 'one\ntwo'));
});
