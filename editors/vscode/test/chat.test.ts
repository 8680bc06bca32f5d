import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, cost, lasted, spent, tokens, used } from '../src/chat/figures';
import { history } from '../src/chat/history';
import { type Partial, type Turn, isFromView, isPartial, isToView } from '../src/chat/messages';
import { Results } from '../src/chat/results';
import { applied, begun, failed, taken } from '../src/chat/turn';
import { mentions, slashed, typed } from '../src/chat/words';

const USAGE = {
    inputTokens: 1_000,
    outputTokens: 200,
    thinkingTokens: null,
    cacheReadTokens: 800,
    cacheWriteTokens: null,
    costUsd: 0.0125,
};
const RESULT = {
    turnId: 't1',
    sessionId: 's1',
    stopReason: 'end_turn' as const,
    text: 'Done.',
    thinking: null,
    edits: null,
    verified: null,
    usage: USAGE,
    notices: ['Said.', 'Left unsaved: a.py.'],
};

function run(...values: [Partial, number][]): Turn {
    return values.reduce((turn, [value, now]) => taken(turn, value, now), begun('Fix it', [], 0));
}

const tool = (toolCallId: string, status: 'in_progress' | 'completed' | 'failed'): Partial => ({
    kind: 'tool',
    toolCallId,
    name: 'read_file',
    title: 'read a.py',
    status,
});

test('partial results become what is shown, in their order', () => {
    const turn = run(
        [{ kind: 'thinking', delta: 'I read ' }, 100],
        [{ kind: 'thinking', delta: 'it.' }, 200],
        [{ kind: 'tool', toolCallId: '0', name: 'plan', title: 'plan', status: 'completed' }, 250],
        [tool('1', 'in_progress'), 2_000],
        [tool('2', 'in_progress'), 2_000],
        [tool('1', 'completed'), 2_100],
        [{ kind: 'notice', level: 'info', text: 'Said.' }, 2_100],
        [tool('2', 'failed'), 2_200],
        [{ kind: 'plan', entries: [{ text: 'Read', status: 'completed' }] }, 2_300],
        [{ kind: 'usage', ...USAGE }, 2_300],
        [{ kind: 'text', delta: 'Do' }, 2_400],
        [{ kind: 'text', delta: 'ne.' }, 2_500],
        [{ kind: 'usage', ...USAGE }, 2_600],
    );
    assert.deepEqual(turn.parts, [
        { kind: 'thinking', text: 'I read it.', began: 0, ended: 2_000 },
        { kind: 'tool', id: '1', name: 'read_file', title: 'read a.py', status: 'completed' },
        { kind: 'tool', id: '2', name: 'read_file', title: 'read a.py', status: 'failed' },
        { kind: 'notice', level: 'info', text: 'Said.' },
        { kind: 'text', text: 'Done.' },
    ]);
    assert.equal(turn.plan[0]?.text, 'Read');
    assert.deepEqual(turn.usage, { ...USAGE, inputTokens: 2_000, outputTokens: 400, cacheReadTokens: 1_600, costUsd: 0.025 });
    assert.ok(turn.running);
    const ended = taken(turn, { kind: 'finished', result: RESULT }, 3_000);
    assert.equal(ended.running, false);
    assert.deepEqual(ended.usage, USAGE);
    // What was said while it ran is not said again.
    assert.deepEqual(ended.parts.slice(turn.parts.length), [{ kind: 'notice', level: 'info', text: 'Left unsaved: a.py.' }]);
});

test('a thought leaves a line behind where it was long or can be read', () => {
    const thoughts = (turn: Turn) => turn.parts.filter(part => part.kind === 'thinking');
    assert.deepEqual(thoughts(run([{ kind: 'text', delta: 'a' }, 900])), []);
    assert.equal(thoughts(run([{ kind: 'text', delta: 'a' }, 1_100])).length, 1);
    assert.equal(thoughts(run([{ kind: 'thinking', delta: 'a' }, 1], [{ kind: 'text', delta: 'a' }, 2])).length, 1);
    // Between two tools the model thinks again, and while one runs it does not.
    const between = run([tool('1', 'in_progress'), 10], [tool('1', 'completed'), 20]);
    assert.deepEqual(between.parts.map(part => part.kind), ['tool', 'thinking']);
    assert.deepEqual(run([tool('1', 'in_progress'), 10]).parts.map(part => part.kind), ['tool']);
});

test('A-5: a restart takes back what was written since the last complete step, and nothing else', () => {
    const text = (delta: string): [Partial, number] => [{ kind: 'text', delta }, 10];
    const thinking = (delta: string): [Partial, number] => [{ kind: 'thinking', delta }, 5];
    const restart: [Partial, number] = [{ kind: 'restart' }, 20];
    const notice: [Partial, number] = [{ kind: 'notice', level: 'warning', text: 'It broke.' }, 20];
    const step: [Partial, number] = [{ kind: 'usage', ...USAGE }, 30];
    const used: [Partial, number][] = [[tool('1', 'in_progress'), 10], [tool('1', 'completed'), 10], step];
    const read = (turn: Turn) => turn.parts.map(part => ('text' in part ? `${part.kind}: ${part.text}` : part.kind));
    const cases: [[Partial, number][], string[]][] = [
        [[restart, text('Whole.')], ['text: Whole.']],
        [[text('Ha'), restart, notice, text('Whole.')], ['notice: It broke.', 'text: Whole.']],
        [[thinking('Hm'), text('Ha'), restart, restart, thinking('Well'), text('Whole.')], ['thinking: Well', 'text: Whole.']],
        [[text('Ha'), notice, text('lf'), restart], ['notice: It broke.', 'thinking: ']],
        [[text('I look.'), ...used, text('Ha'), restart, text('Whole.')], ['text: I look.', 'tool', 'text: Whole.']],
        [[text('Paused, '), step, text('a'), restart, text('whole.')], ['text: Paused, whole.']],
        [[text('Ha'), restart, text('I look.'), ...used, text('x'), restart, notice], ['text: I look.', 'tool', 'notice: It broke.', 'thinking: ']],
    ];
    for (const [values, shown] of cases) {
        assert.deepEqual(read(run(...values)), shown);
    }
    assert.ok(isPartial({ kind: 'restart' }));
});

test('A-12: a failed turn ends with its result, and one that never began without', () => {
    const result = { ...RESULT, stopReason: 'error' as const, text: 'The key is wrong.' };
    assert.ok(isPartial({ kind: 'finished', result }));
    assert.ok(!isPartial({ kind: 'finished', result: null }));
    for (const turn of [run([{ kind: 'finished', result }, 10]), failed(run(), 10)]) {
        assert.deepEqual([turn.running, turn.stopReason, turn.edits], [false, 'error', null]);
    }
});

test('what apply has done stands at the files', () => {
    const held = { uri: 'file:///a.py', status: 'held' as const, hunks: { applied: 0, waiting: 1 }, reason: 'the turn was cancelled' };
    const other = { ...held, uri: 'file:///b.py' };
    const edits = { applied: 'none' as const, files: [held, other], proposalId: 't1' };
    const turn = run([{ kind: 'finished', result: { ...RESULT, edits } }, 10]);
    const some = applied(turn, [{ ...held, status: 'applied', reason: null }]);
    assert.deepEqual([some.edits?.applied, some.edits?.files[1]?.status], ['some', 'held']);
    const all = applied(some, [{ ...other, status: 'applied', reason: null }]);
    assert.equal(all.edits?.applied, 'all');
});

const EXPORTED = JSON.stringify({
    title: 'Fix it',
    messages: [
        {
            role: 'user',
            blocks: [
                {
                    kind: 'text',
                    text: 'Fix it\n\nDiagnostics of a.py:\n- line 1: error: no x\n- line 2: hint: y\n\nThis turn only reads: answer the question, change no files.\n\na.py, lines 1-2 of 9:\n<excerpt>\n     1  x\n     2  y\n</excerpt>',
                },
            ],
        },
        {
            role: 'assistant',
            blocks: [
                { kind: 'thinking', opaque: { sha256: '00', length: 3, model: 'm' } },
                { kind: 'tool_use', id: '0', name: 'plan', input: { entries: [{ text: 'Read', status: 'pending' }] } },
                { kind: 'tool_use', id: '1', name: 'read_file', input: { path: 'a.py' } },
            ],
        },
        { role: 'user', blocks: [{ kind: 'tool_result', id: '1', is_error: true, text: 'There is no a.py.' }] },
        { role: 'assistant', blocks: [{ kind: 'text', text: 'Done.' }] },
        { role: 'user', blocks: [{ kind: 'text', text: 'A note.' }, { kind: 'text', text: 'Thanks' }] },
    ],
});

test('a stored session becomes turns', () => {
    const { title, turns, tools } = history(EXPORTED);
    assert.equal(title, 'Fix it');
    assert.deepEqual(turns.map(turn => [turn.prompt, turn.attachments]), [['Fix it', ['a.py:1-2']], ['Thanks', []]]);
    assert.deepEqual(turns[0]?.parts, [
        { kind: 'tool', id: '1', name: 'read_file', title: 'read a.py', status: 'failed' },
        { kind: 'text', text: 'Done.' },
    ]);
    assert.deepEqual(turns[0]?.plan, [{ text: 'Read', status: 'pending' }]);
    assert.deepEqual(tools.get('1'), { input: '{\n  "path": "a.py"\n}', output: 'There is no a.py.' });
    for (const none of ['', '{', '[]', '{"title": 1}', '{"title": "", "messages": [{}]}']) {
        assert.deepEqual(history(none).turns, []);
    }
});

test('how a turn ended is known again where it stands', () => {
    const results = new Results();
    const { turns } = history(EXPORTED);
    results.keep(turns, 'Thanks ', { ...RESULT, stopReason: 'cancelled' });
    results.keep(turns.slice(0, 1), 'One that was not stored', RESULT);
    assert.deepEqual(results.onto('s1', turns).map(turn => turn.stopReason), [null, 'cancelled']);
    assert.deepEqual(results.onto('other', turns).map(turn => turn.stopReason), [null, null]);
    // After a compaction something else stands there.
    assert.deepEqual(results.onto('s1', turns.toReversed()).map(turn => turn.stopReason), [null, null]);
});

test('only messages of the protocol come through', () => {
    const good: [(value: unknown) => boolean, unknown][] = [
        [isFromView, { kind: 'ready' }],
        [isFromView, { kind: 'ask', prompt: 'a', mode: 'plan', selection: true }],
        [isToView, { kind: 'partial', value: { kind: 'text', delta: 'a' } }],
        [isToView, { kind: 'opened', sessionId: null, title: '', turns: [begun('a', ['b'], 0)] }],
        [isPartial, { kind: 'finished', result: RESULT }],
        [isPartial, { kind: 'usage', ...USAGE }],
    ];
    for (const [check, value] of good) {
        assert.ok(check(structuredClone(value)), JSON.stringify(value));
        // A field that is gone or of another type makes it none.
        for (const name of Object.keys(value as object)) {
            const { [name]: _, ...rest } = value as Record<string, unknown>;
            assert.ok(!check(rest), `${JSON.stringify(value)} without ${name}`);
            assert.ok(!check({ ...rest, [name]: { other: 1 } }), `${JSON.stringify(value)} with another ${name}`);
        }
    }
    for (const bad of [null, undefined, 1, 'ready', [], {}, { kind: 'constructor' }, { kind: '__proto__' }, { kind: ['ready'] }]) {
        assert.ok(!isFromView(bad) && !isToView(bad) && !isPartial(bad), String(bad));
    }
    assert.ok(!isFromView({ kind: 'fix', fix: 'workbench.action.quit' }));
    assert.ok(!isFromView(Object.create({ kind: 'ready' })));
});

test('references and commands are told from words', () => {
    assert.deepEqual(mentions('see @src/a.py:3-7, (@b.md) and @selection. me@here.org'), [
        { path: 'src/a.py', first: 3, last: 7 },
        { path: 'b.md' },
        { path: 'selection' },
    ]);
    assert.deepEqual(mentions('@a.py:5'), [{ path: 'a.py', first: 5, last: 5 }]);
    assert.deepEqual(slashed('/Effort high '), { name: 'effort', argument: 'high' });
    assert.deepEqual(slashed('/restore 3f9c'), { name: 'restore', argument: '3f9c' });
    assert.deepEqual(slashed('/compact keep\nthe names'), { name: 'compact', argument: 'keep\nthe names' });
    for (const text of ['/etc/hosts', '//', ' /help', 'a /help', '']) {
        assert.equal(slashed(text), null, text);
    }
    assert.ok('problem' in (slashed('/nonsense') ?? {}));
    const cases: [string, string | undefined][] = [
        ['@', '@'],
        ['fix @sr', '@sr'],
        ['a@b', undefined],
        ['/ef', '/ef'],
        ['fix /ef', undefined],
        ['/ef x', undefined],
    ];
    for (const [text, word] of cases) {
        assert.equal(typed(text, text.length)?.word, word, text);
    }
    assert.deepEqual(typed('see @a now', 6), { word: '@a', start: 4 });
});

test('figures are short', () => {
    assert.deepEqual([0, 999, 1_000, 1_250, 12_345, 999_499, 999_500, 2_400_000].map(tokens), [
        '0', '999', '1k', '1.3k', '12k', '999k', '1M', '2.4M',
    ]);
    assert.deepEqual([0, 0.00001, 0.0206, 1.5].map(cost), ['$0.0000', '< $0.0001', '$0.0206', '$1.50']);
    assert.deepEqual([400, 59_000, 125_000].map(lasted), ['0 s', '59 s', '2 min 5 s']);
    assert.equal(used(USAGE), '1k in (80% cached) · 200 out · $0.0125');
    assert.equal(spent(USAGE), '$0.0125 · 80% cached');
    assert.equal(spent({ ...USAGE, costUsd: null, cacheReadTokens: null }), '1.2k tokens');
    const now = Date.parse('2026-01-10T12:00:00Z');
    const then = ['2026-01-10T11:59:30Z', '2026-01-10T11:15:00Z', '2026-01-09T20:00:00Z', '2026-01-01T12:00:00Z', 'never'];
    assert.deepEqual(then.map(one => ago(one, now)), ['just now', '45 min ago', '16 h ago', '9 d ago', 'just now']);
});
