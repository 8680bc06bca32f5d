/** Creates elements. Strings are always inserted as text, never as markup. */

type Child = Node | string | false | null | undefined;
type Attributes = Record<string, string | number | boolean | undefined>;

export function element<N extends keyof HTMLElementTagNameMap>(
    name: N,
    attributes: Attributes = {},
    ...children: Child[]
): HTMLElementTagNameMap[N] {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (value !== undefined && value !== false) {
            made.setAttribute(key, value === true ? '' : String(value));
        }
    }
    made.append(...children.flatMap(child => (child === false || child === null || child === undefined || child === '' ? [] : [child])));
    return made;
}

/** Creates a button; `label` names it for screen readers if it shows only an icon. */
export function button(
    { label, icon: name, text, class: style = '' }: { label?: string; icon?: IconName; text?: string; class?: string },
    act: () => void,
): HTMLButtonElement {
    const classes = `${text === undefined ? 'icon-button' : 'text-button'} ${style}`.trim();
    const made = element('button', { type: 'button', class: classes, 'aria-label': label, title: label }, name && icon(name), text);
    made.addEventListener('click', act);
    return made;
}

const ICONS = {
    send: 'M8 13V3M3.5 7.5 8 3l4.5 4.5',
    stop: 'M4 4h8v8H4z',
    copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z',
    insert: 'M2.5 3h11M2.5 13h11M8 5.5v5M5.5 8l2.5 2.5L10.5 8',
    apply: 'M3.5 1.5h5.5l3.5 3.5v9.5h-9zM5.5 9l2 2 3.5-4',
    terminal: 'M2 3h12v10H2zM4.5 6 7 8l-2.5 2M8 10.5h3.5',
    edit: 'M3 13l.5-3L11 2.5 13.5 5 6 12.5zM9.5 4l2.5 2.5',
    retry: 'M3 8a5 5 0 1 0 1.6-3.6L3 6M3 2.5V6h3.5',
    export: 'M8 10V2M4.5 5.5 8 2l3.5 3.5M2.5 9.5v4h11v-4',
    add: 'M8 3v10M3 8h10',
    down: 'M4.5 6.5 8 10l3.5-3.5',
    none: '',
    question: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.3 6.3a1.7 1.7 0 1 1 2.4 1.9c-.5.3-.7.6-.7 1.2M8 11.2v.3',
    check: 'M3 8.5 6.5 12 13 4.5',
    cross: 'M4 4l8 8M12 4l-8 8',
    chevron: 'M6 4l4 4-4 4',
    fork: 'M4.5 5.5v5M4.5 7.5c0 1 .5 1.5 1.5 1.5h3c1.5 0 2.5-1 2.5-2.5v-1M4.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM4.5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z',
    trash: 'M2.5 4h11M6 4V2.5h4V4M4 4l.6 9.5h6.8L12 4M6.7 6.5v4.5M9.3 6.5v4.5',
    back: 'M9.5 3.5 5 8l4.5 4.5',
    file: 'M3.5 1.5h5.5l3.5 3.5v9.5h-9zM9 1.5V5h3.5',
    circle: 'M8 13a5 5 0 1 0 0-10 5 5 0 0 0 0 10Z',
    spinner: 'M8 2.5a5.5 5.5 0 1 0 5.5 5.5',
    info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 7v4M8 4.7v.6',
    warning: 'M8 2 1.5 13.5h13zM8 6.5v3.5M8 11.5v.6',
    error: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4',
} as const;
export type IconName = keyof typeof ICONS;

const SVG = 'http://www.w3.org/2000/svg';

export function icon(name: IconName): SVGSVGElement {
    const drawing = document.createElementNS(SVG, 'svg');
    drawing.setAttribute('viewBox', '0 0 16 16');
    drawing.setAttribute('aria-hidden', 'true');
    drawing.classList.add('icon', `icon-${name}`);
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', ICONS[name]);
    drawing.append(path);
    return drawing;
}
