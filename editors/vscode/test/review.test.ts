/** The words of a review. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countChanges, plainLine, summaryOf, testsOf } from '../src/review/words';

test('a line of Markdown is plain and ends in time', () => {
    assert.equal(plainLine('The **parameter** is called `values`;\nI use it.'), 'The parameter is called values; I use it.');
    assert.equal(plainLine('```python\nx = 1\n```\nDone.'), '… Done.');
    assert.equal(plainLine('one two three', 9), 'one two…');
    assert.equal(plainLine(' \n'), '');
});

test('the outcome of the tests stands below the answer', () => {
    const failed = { command: 'pytest', passed: 3, failed: 1 };
    assert.equal(summaryOf('Done.', testsOf(failed)), 'Done.\n\nTests: 1 failed, 3 passed.');
    assert.equal(summaryOf('', testsOf({ ...failed, failed: 0 })), 'Tests: 3 passed.');
    assert.equal(summaryOf('Done.', testsOf(null)), 'Done.');
    assert.equal(summaryOf(' ', testsOf(null)), '');
});

test('changes and files are counted', () => {
    assert.equal(countChanges(1, 1), '1 change in 1 file');
    assert.equal(countChanges(3, 2), '3 changes in 2 files');
});
