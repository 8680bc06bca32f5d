import assert from 'node:assert/strict';
import { test } from 'node:test';
import { history } from '../src/chat/history';
import { Results } from '../src/chat/results';
import { RESULT, USAGE } from './values';

const DIAGNOSTICS = '\n\nDiagnostics of a.py:\n- line 1: error: no x\n- line 2: hint: y';
const EXPORTED = JSON.stringify({
    title: 'Fix it',
    steps: 5,
    messages: [
        {
            role: 'user',
            blocks: [{ kind: 'text', text: `Fix it${DIAGNOSTICS}`, turn: 't1' }],
        },
        {
            role: 'assistant',
            blocks: [
                { kind: 'thinking', opaque: { sha256: '00', length: 3, model: 'm' } },
                { kind: 'tool_use', id: '0', name: 'plan', input: { entries: [{ text: 'Read', status: 'pending' }] } },
                { kind: 'tool_use', id: '1', name: 'read_file', input: { path: 'a.py' } },
            ],
        },
        {
            role: 'user',
            blocks: [
                // An image of a tool precedes the results, and does not belong to the prompt.
                { kind: 'image', name: 'image 1 of the MCP server sky', mediaType: 'image/png', sha256: 'a', length: 9, width: 1, height: 1 },
                { kind: 'tool_result', id: '1', is_error: true, text: 'There is no a.py.' },
                { kind: 'text', text: 'And b.py', turn: 't2' },
            ],
        },
        { role: 'assistant', blocks: [{ kind: 'text', text: 'Done.' }] },
        { role: 'user', blocks: [{ kind: 'text', text: 'Thanks', turn: 't3' }] },
        { role: 'assistant', blocks: [{ kind: 'text', text: 'I look.' }] },
    ],
    unanswered: [
        { text: 'Hello?', messages: 4, outcome: 'cancelled', reason: '', turn: 't0', partial: 'Hel', references: ['c.py'] },
        { text: 'Later', messages: 4, outcome: 'queued', reason: '', turn: 't9', partial: '' },
        { text: '', messages: 6, outcome: 'error', reason: 'The key is wrong.', turn: 't3', partial: 'I have' },
    ],
    turns: [
        { turnId: 't1', usage: USAGE, files: ['file:///src/a.py'], undone: ['file:///c.py'], references: ['src/a.py:1-2', 'b.py'] },
        { turnId: 't3', usage: { ...USAGE, costUsd: null }, files: [], references: [] },
    ],
});

test('T-M5: a stored session becomes turns, with costs, files, context and the text of stopped answers', () => {
    const { title, turns, tools } = history(EXPORTED);
    assert.equal(title, 'Fix it');
    const shown = turns.map(turn => [turn.prompt, turn.attachments, turn.references, turn.step, turn.stopReason, turn.usage?.costUsd]);
    assert.deepEqual(shown, [
        ['Fix it', ['a.py:1-2', 'b.py'], ['src/a.py:1-2', 'b.py'], 2, null, 0.0125],
        ['And b.py', [], [], 3, null, undefined],
        ['Hello?', ['c.py'], ['c.py'], 4, 'cancelled', undefined],
        ['Thanks', [], [], 4, 'error', null],
    ]);
    assert.deepEqual(turns[0]?.parts, [{ kind: 'tool', id: '1', name: 'read_file', title: 'read a.py', status: 'failed' }]);
    assert.deepEqual(turns[0]?.plan, [{ text: 'Read', status: 'pending' }]);
    assert.deepEqual(turns[0]?.edits?.files.map(file => [file.uri, file.status]), [['file:///src/a.py', 'applied'], ['file:///c.py', 'undone']]);
    assert.deepEqual(turns[2]?.parts, [{ kind: 'text', text: 'Hel' }]);
    assert.deepEqual(turns[3]?.parts, [
        { kind: 'text', text: 'I look.' },
        { kind: 'text', text: 'I have' },
        { kind: 'notice', level: 'error', text: 'The key is wrong.' },
    ]);
    assert.deepEqual(tools.get('1'), { input: '{\n  "path": "a.py"\n}', output: 'There is no a.py.' });
    for (const none of ['', '{', '[]', '{"title": 1}', '{"title": "", "messages": [{}]}']) {
        assert.deepEqual(history(none).turns, []);
    }
});

test('how a turn ended in this window is known again', () => {
    const results = new Results();
    const { turns } = history(EXPORTED);
    results.keep('t1', { ...RESULT, stopReason: 'cancelled' });
    results.keep('t3', RESULT, { prompt: 'Explain this code', attachments: ['a.py'] });
    results.keepPlaces('t1', 'Fix it ', []);
    const known = results.onto(turns);
    assert.deepEqual(known.map(turn => turn.stopReason), ['cancelled', null, 'cancelled', 'end_turn']);
    assert.deepEqual([known[0]?.prompt, known[3]?.prompt, known[3]?.attachments], ['Fix it', 'Explain this code', ['a.py']]);
    // A prompt that joined the turn has the same result, but not the same places.
    assert.deepEqual(turns.map(turn => results.places(turn)), [[], undefined, undefined, undefined]);
});
