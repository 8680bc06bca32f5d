/** The images of a prompt. These checks spare the user a round trip; the server checks the bytes. Pure functions. */

export const IMAGE_TYPES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'] as const;
export const MAX_IMAGES = 20;
export const MAX_IMAGE_BYTES = 5_000_000;

/** An image as the server takes it; `data` is base64. */
export interface SentImage {
    readonly mimeType: (typeof IMAGE_TYPES)[number];
    readonly data: string;
}

/** The facts of a file that the user pasted or dropped. */
export interface ImageFile {
    readonly name: string;
    readonly type: string;
    readonly size: number;
}

/** Returns why a file is not attached; undefined if it is. `count`: the images that are already attached. */
export function refusal({ name, type, size }: ImageFile, count: number): string | undefined {
    if (!isImageType(type)) {
        return `${name} was not attached: only PNG, JPEG, WebP and GIF images can be sent. To add a file, type @ and its name.`;
    }
    if (size === 0) {
        return `${name} was not attached: the file is empty.`;
    }
    if (size > MAX_IMAGE_BYTES) {
        const megabytes = (size / 1_000_000).toFixed(1);
        return `${name} was not attached: it has ${megabytes} MB, and at most 5 MB can be sent. Shrink it, or save it as JPEG.`;
    }
    return count >= MAX_IMAGES ? `${name} was not attached: at most ${MAX_IMAGES} images can be sent at once.` : undefined;
}

/** Reads a data URL, which is what the browser makes of a file; undefined if it is not that of an image. */
export function fromDataUrl(url: string): SentImage | undefined {
    const [head = '', data = ''] = url.split(',', 2);
    const mimeType = /^data:([^;]*);base64$/.exec(head)?.[1] ?? '';
    return isImageType(mimeType) && data !== '' ? { mimeType, data } : undefined;
}

export function dataUrl({ mimeType, data }: SentImage): string {
    return `data:${mimeType};base64,${data}`;
}

/** Returns the name that the server gives an image of a prompt, counted from 0. */
export function imageName(at: number): string {
    return `Image ${at + 1}`;
}

/** Returns the words of a prompt. The server stores these if the user has sent only images. */
export function wordsOf(prompt: string, images: readonly SentImage[]): string {
    return prompt.trim() === '' ? images.map((_, at) => `[${imageName(at)}]`).join(' ') : prompt;
}

/** The images of the last prompts, which a retry sends again. */
export class RecentImages {
    private readonly byPrompt = new Map<string, readonly SentImage[]>();

    constructor(private readonly most = 10) {}

    keep(prompt: string, images: readonly SentImage[]): void {
        const key = prompt.trim();
        this.byPrompt.delete(key);
        if (images.length > 0) {
            this.byPrompt.set(key, images);
            [...this.byPrompt.keys()].slice(0, -this.most).forEach(old => this.byPrompt.delete(old));
        }
    }

    of(prompt: string): readonly SentImage[] {
        return this.byPrompt.get(prompt.trim()) ?? [];
    }
}

function isImageType(type: string): type is SentImage['mimeType'] {
    return (IMAGE_TYPES as readonly string[]).includes(type);
}
