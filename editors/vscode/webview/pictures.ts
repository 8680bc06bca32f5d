/** The images that the user has pasted or dropped for the next prompt, with a button to remove each. */

import { type SentImage, dataUrl, fromDataUrl, imageName, refusal } from '../src/chat/images';
import { button, element } from './dom';

export interface PictureActs {
    changed(): void;
    /** Tells the user why a file is not attached. */
    warn(text: string): void;
    focus(): void;
}

export class Pictures {
    readonly root = element('ul', { class: 'pictures', 'aria-label': 'Attached images', hidden: true });
    private images: readonly SentImage[] = [];

    constructor(private readonly acts: PictureActs) {}

    get empty(): boolean {
        return this.images.length === 0;
    }

    /** Returns the images and removes them. */
    take(): readonly SentImage[] {
        const taken = this.images;
        this.show([]);
        return taken;
    }

    /** Attaches images again that were not sent. */
    restore(images: readonly SentImage[]): void {
        this.show([...images, ...this.images]);
    }

    async add(files: readonly File[]): Promise<void> {
        for (const file of files) {
            const problem = refusal(file, this.images.length);
            const image = problem === undefined ? fromDataUrl(await read(file)) : undefined;
            if (image === undefined) {
                this.acts.warn(problem ?? `${file.name} was not attached: it could not be read.`);
            } else {
                this.show([...this.images, image]);
            }
        }
    }

    private show(images: readonly SentImage[]): void {
        const focused = this.root.contains(document.activeElement);
        this.images = images;
        const rows = images.map((image, at) => {
            const remove = button({ label: `Remove ${imageName(at)}`, icon: 'cross' }, () =>
                this.show(this.images.filter(other => other !== image)),
            );
            return element('li', {}, picture(image, at), remove);
        });
        this.root.replaceChildren(...rows);
        this.root.hidden = rows.length === 0;
        if (focused) {
            this.acts.focus();
        }
        this.acts.changed();
    }
}

/** Creates a thumbnail. */
export function picture(image: SentImage, at: number): HTMLImageElement {
    return element('img', { src: dataUrl(image), alt: imageName(at), title: imageName(at) });
}

function read(file: File): Promise<string> {
    return new Promise(resolve => {
        const reader = new FileReader();
        reader.addEventListener('load', () => resolve(String(reader.result)));
        reader.addEventListener('error', () => resolve(''));
        reader.readAsDataURL(file);
    });
}
