import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, cost, lasted, spent, tokens, used } from '../src/chat/figures';
import { namedFile, parseTokens, placeCode, terminalLine } from '../src/chat/code';
import { type Partial, type Turn, isFromView, isPartial, isToView } from '../src/chat/messages';
import { fixesFor } from '../src/chat/fixes';
import { modelFacts, providerName } from '../src/chat/models';
import { parseFindings, parsePlace, splitPlaces } from '../src/chat/places';
import { afterDrop, applied, begun, failed, taken } from '../src/chat/turn';
import { mentions, slashed, typed } from '../src/chat/words';
import { RESULT, USAGE } from './values';

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
    // The progress of the finished call is not shown again.
    assert.deepEqual(ended.parts.slice(turn.parts.length), [{ kind: 'notice', level: 'info', text: 'Left unsaved: a.py.' }]);
});

test('a thought leaves a line behind where it was long or can be read', () => {
    const thoughts = (turn: Turn) => turn.parts.filter(part => part.kind === 'thinking');
    assert.deepEqual(thoughts(run([{ kind: 'text', delta: 'a' }, 900])), []);
    assert.equal(thoughts(run([{ kind: 'text', delta: 'a' }, 1_100])).length, 1);
    assert.equal(thoughts(run([{ kind: 'thinking', delta: 'a' }, 1], [{ kind: 'text', delta: 'a' }, 2])).length, 1);
    // The model thinks between two tool calls, and not while a tool runs.
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
    const statuses = (isUndone: boolean) => some.edits?.files.map(file => afterDrop(file, isUndone).status);
    assert.deepEqual([statuses(false), statuses(true)], [['applied', 'discarded'], ['undone', 'discarded']]);
});

test('an error offers the buttons that help', () => {
    const offered = (text: string, canRetry = true) => fixesFor(text, canRetry).map(({ fix }) => fix);
    assert.deepEqual(offered('The provider is overloaded (529).'), ['retry']);
    assert.deepEqual(offered('The provider refused the key (401).'), ['setKey', 'retry']);
    assert.deepEqual(offered('config.toml: line 3 is not valid TOML.', false), ['openConfig']);
});

test('only one command of a shell goes to the terminal', () => {
    assert.equal(terminalLine('bash', 'npm test\n'), 'npm test');
    assert.equal(terminalLine('console', '$ npm test'), 'npm test');
    const others = [['python', 'x'], ['bash', 'a\nb'], ['sh', ' '], ['sh', 'a\u0003b'], ['sh', 'a\u202eb']] as const;
    for (const [language, code] of others) {
        assert.equal(terminalLine(language, code), undefined, JSON.stringify(code));
    }
});

test('models are described with their window and price', () => {
    const price = { input: 5, output: 25 };
    const model = { id: 'm-1', provider: 'openai', title: 'Model One', hasKey: true, window: 1_000_000, price };
    assert.equal(modelFacts(model), 'm-1 · 1M context · $5 in, $25 out per million tokens');
    assert.equal(modelFacts({ ...model, title: 'm-1', window: null, price: null }), '');
    assert.deepEqual(['openai', 'other'].map(providerName), ['OpenAI', 'other']);
});

test('only messages of the protocol come through', () => {
    const good: [(value: unknown) => boolean, unknown][] = [
        [isFromView, { kind: 'ready' }],
        [isFromView, { kind: 'ask', prompt: 'a', mode: 'plan', place: { uri: 'file:///a.py', lines: { first: 0, last: 3 } } }],
        [isToView, { kind: 'partial', value: { kind: 'text', delta: 'a' } }],
        [isToView, { kind: 'opened', sessionId: null, title: '', turns: [begun('a', ['b'], 0)] }],
        [isPartial, { kind: 'finished', result: RESULT }],
        [isPartial, { kind: 'usage', ...USAGE }],
    ];
    for (const [check, value] of good) {
        assert.ok(check(structuredClone(value)), JSON.stringify(value));
        // A missing field or one of another type makes the message invalid.
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
    // The server reads the line of a skill, so the prompt is sent as it is.
    for (const text of ['/etc/hosts', '//', ' /help', 'a /help', '', '/skill:review', '/skill:review a.py\n/help']) {
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
        ['/skill:code-r', '/skill:code-r'],
        ['/skill:x y', undefined],
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
    for (const costUsd of [null, 0]) {
        assert.equal(used({ ...USAGE, costUsd }), '1k in (80% cached) · 200 out');
        assert.equal(spent({ ...USAGE, costUsd, cacheReadTokens: null }), '1.2k tokens');
    }
    const now = Date.parse('2026-01-10T12:00:00Z');
    const then = ['2026-01-10T11:59:30Z', '2026-01-10T11:15:00Z', '2026-01-09T20:00:00Z', '2026-01-01T12:00:00Z', 'never'];
    assert.deepEqual(then.map(one => ago(one, now)), ['just now', '45 min ago', '16 h ago', '9 d ago', 'just now']);
});

test('places in a text are found, and addresses and versions are not', () => {
    const places = (text: string) => splitPlaces(text).filter(piece => piece.isPlace).map(piece => piece.text);
    assert.deepEqual(places('See src/app.py:10-12, (b.ts:3:5) and main.c:7.'), ['src/app.py:10-12', 'b.ts:3:5', 'main.c:7']);
    assert.deepEqual(places('http://a.org:80/x.py, 127.0.0.1:8080, localhost:1, at 12:30, a.py:x'), []);
    assert.equal(splitPlaces('a.py:1 b').map(piece => piece.text).join(''), 'a.py:1 b');
    assert.deepEqual(parsePlace('src/app.py:10-12'), { path: 'src/app.py', lines: [9, 11] });
    assert.deepEqual(parsePlace('app.py#L3'), { path: 'app.py', lines: [2, 2] });
    assert.deepEqual(parsePlace('app.py:3:7'), { path: 'app.py', lines: [2, 2] });
    assert.deepEqual(parsePlace('app.py'), { path: 'app.py', lines: undefined });
});

test('the findings of a review are parsed from its list', () => {
    const answer = '- src/a.py:3: error: it fails;\n  fix it.\n* `b.py:4-5` – unused\n- no place\n\nFine otherwise: c.py:1.';
    assert.deepEqual(parseFindings(answer), [
        { path: 'src/a.py', lines: [2, 2], severity: 1, message: 'it fails; fix it.' },
        { path: 'b.py', lines: [3, 4], severity: 2, message: 'unused' },
    ]);
});

test('a code block names its file in its info string or in its first line', () => {
    assert.deepEqual(namedFile('python src/app.py', 'x = 1'), { path: 'src/app.py', code: 'x = 1' });
    assert.deepEqual(namedFile('ts:a/b.ts', 'x'), { path: 'a/b.ts', code: 'x' });
    assert.deepEqual(namedFile('python title="app.py"', 'x'), { path: 'app.py', code: 'x' });
    assert.deepEqual(namedFile('python', '# src/app.py\n\nx = 1'), { path: 'src/app.py', code: 'x = 1' });
    assert.deepEqual(namedFile('ts', '// file: app.ts\nx'), { path: 'app.ts', code: 'x' });
    assert.deepEqual(namedFile('python', '# Round up.\nx = 1'), { path: undefined, code: '# Round up.\nx = 1' });
});

test('a code block replaces the block that starts with the same line', () => {
    const text = 'import os\n\nclass A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n';
    const apply = (code: string) => {
        const place = placeCode(text, code);
        return place && text.slice(0, place.start) + place.text + text.slice(place.end);
    };
    assert.equal(apply('def f(self):\n    x = 3\n\n    return x\n'), text.replace('        return 1', '        x = 3\n\n        return x'));
    assert.equal(apply('class A:\n    pass'), 'import os\n\nclass A:\n    pass\n');
    assert.equal(apply('def h(self):\n    return 1'), undefined);
    const braces = placeCode('function f() {\n  a;\n}\nb;\n', 'function f() {\n  c;\n}');
    assert.deepEqual(braces, { start: 0, end: 21, text: 'function f() {\n  c;\n}' });
    assert.equal(placeCode('a = 1\na = 1\n', 'a = 1'), undefined, 'two places are none');
});

test('highlighted code has the text of the block, and nothing else of the HTML', () => {
    const html = '<pre><code class="hljs">\n<span class="hljs-keyword">if</span> a &lt; <span class="hljs-title function_">f</span>(<span class="hljs-string">&quot;&amp;&quot;</span>):\n</code></pre>';
    const code = '\nif a < f("&"):';
    assert.deepEqual(parseTokens(html, code)?.map(({ text, style }) => [text, style]), [
        ['\n', ''], ['if', 'keyword'], [' a < ', ''], ['f', 'title'], ['(', ''], ['"&"', 'string'], ['):\n', ''],
    ]);
    assert.equal(parseTokens(html.replace('if', 'of'), code), undefined);
});

test('the arguments and the result of a tool call are kept, and older servers send none', () => {
    const call = { ...tool('1', 'in_progress'), arguments: '{"path": "a.py"}', result: null } as Partial;
    const done = { ...tool('1', 'completed'), arguments: '{"path": "a.py"}', result: 'x = 1' } as Partial;
    assert.ok(isPartial(call) && isPartial(done) && isPartial(tool('1', 'completed')));
    const [part] = run([call, 10], [done, 20]).parts;
    assert.deepEqual(part, { kind: 'tool', id: '1', name: 'read_file', title: 'read a.py', status: 'completed', input: '{"path": "a.py"}', output: 'x = 1' });
});
