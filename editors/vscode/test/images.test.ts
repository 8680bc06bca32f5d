import assert from 'node:assert/strict';
import { test } from 'node:test';
import { history } from '../src/chat/history';
import { MAX_IMAGES, RecentImages, dataUrl, fromDataUrl, imageName, refusal, wordsOf } from '../src/chat/images';
import { isFromView, isToView } from '../src/chat/messages';
import { begun } from '../src/chat/turn';

const PNG = { mimeType: 'image/png', data: 'iVBORw0KGgo=' } as const;
const file = { name: 'shot.png', type: 'image/png', size: 9 };

test('only images that the server takes are attached, and the others are told by name', () => {
    assert.equal(refusal(file, 0), undefined);
    assert.equal(refusal({ ...file, size: 5_000_000 }, MAX_IMAGES - 1), undefined);
    assert.match(refusal({ ...file, type: 'image/svg+xml' }, 0) ?? '', /^shot\.png was not attached: only PNG/);
    assert.match(refusal({ ...file, type: '' }, 0) ?? '', /type @/);
    assert.match(refusal({ ...file, size: 0 }, 0) ?? '', /empty/);
    assert.match(refusal({ ...file, size: 5_250_000 }, 0) ?? '', /5\.3 MB/);
    assert.match(refusal(file, MAX_IMAGES) ?? '', /at most 20 images/);
});

test('data URLs are read as they are written', () => {
    assert.deepEqual(fromDataUrl(dataUrl(PNG)), PNG);
    for (const wrong of ['', 'data:', 'data:image/png;base64,', 'data:text/html;base64,PGI+', 'https://a/b.png', 'data:image/png,abc']) {
        assert.equal(fromDataUrl(wrong), undefined, wrong);
    }
});

test('a prompt of images alone has the words that the server stores', () => {
    assert.equal(wordsOf('What is this?', [PNG]), 'What is this?');
    assert.equal(wordsOf(' \n', [PNG, PNG]), '[Image 1] [Image 2]');
    assert.equal(wordsOf('', []), '');
    assert.equal(imageName(0), 'Image 1');
});

test('a retry has the images of its prompt, if the prompt is one of the last', () => {
    const recent = new RecentImages(2);
    recent.keep('one', [PNG]);
    recent.keep('two ', [PNG, PNG]);
    assert.equal(recent.of(' two').length, 2);
    recent.keep('three', [PNG]);
    assert.deepEqual(recent.of('one'), []);
    recent.keep('two', []);
    assert.deepEqual(recent.of('two'), []);
});

test('messages with images are checked', () => {
    const ask = { kind: 'ask', prompt: 'a', mode: 'agent', place: null };
    assert.ok(isFromView({ ...ask, images: [] }));
    assert.ok(isFromView({ ...ask, images: [PNG] }));
    assert.ok(!isFromView({ ...ask, images: [{ mimeType: 'image/svg+xml', data: '' }] }));
    assert.ok(!isFromView({ ...ask, images: [{ mimeType: 'image/png' }] }));
    assert.ok(isToView({ kind: 'began', prompt: 'a', attachments: [], images: [PNG] }));
    assert.ok(isToView({ kind: 'draft', text: 'a', images: [PNG] }));
    assert.ok(isToView({ kind: 'opened', sessionId: null, title: '', turns: [begun('a', [], 0, [PNG])] }));
});

test('a stored session names the images of each prompt', () => {
    const image = (name: string) => ({ kind: 'image', name, mediaType: 'image/png', sha256: 'a', length: 9, width: 1, height: 1 });
    const text = (words: string, turn?: string) => ({ kind: 'text', text: words, ...(turn && { turn }) });
    const { turns } = history(
        JSON.stringify({
            title: 't',
            steps: 2,
            messages: [
                { role: 'user', blocks: [image('Image 1'), image('a.png'), text('Look', 't1')] },
                { role: 'assistant', blocks: [text('I see.')] },
                { role: 'user', blocks: [text('And?', 't2')] },
                { role: 'assistant', blocks: [text('No.')] },
            ],
        }),
    );
    assert.deepEqual(turns.map(({ attachments }) => attachments), [['Image 1', 'a.png'], []]);
});
