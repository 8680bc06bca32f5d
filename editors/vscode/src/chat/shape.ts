/** Small checks for values that come from another process. A check says what it lets through, so that types follow. */
export type Check<T> = (value: unknown) => value is T;
export type Checked<C> = C extends Check<infer T> ? T : never;
type Shape = Readonly<Record<string, Check<unknown>>>;
type Of<S extends Shape> = { readonly [K in keyof S as undefined extends Checked<S[K]> ? never : K]: Checked<S[K]> } & {
    readonly [K in keyof S as undefined extends Checked<S[K]> ? K : never]?: Checked<S[K]>;
};

export const string: Check<string> = (value): value is string => typeof value === 'string';
export const number: Check<number> = (value): value is number => typeof value === 'number' && Number.isFinite(value);
export const boolean: Check<boolean> = (value): value is boolean => typeof value === 'boolean';
export const anything: Check<unknown> = (_value): _value is unknown => true;

export function nullable<T>(check: Check<T>): Check<T | null> {
    return (value): value is T | null => value === null || check(value);
}

/** Also lets a missing field through. */
export function optional<T>(check: Check<T>): Check<T | null | undefined> {
    return (value): value is T | null | undefined => value === undefined || value === null || check(value);
}

export function list<T>(check: Check<T>): Check<readonly T[]> {
    return (value): value is readonly T[] => Array.isArray(value) && value.every(check);
}

export function oneOf<const T extends string>(...words: readonly T[]): Check<T> {
    return (value): value is T => (words as readonly unknown[]).includes(value);
}

/** Fields that are not in the shape are let through and mean nothing. */
export function object<S extends Shape>(shape: S): Check<Of<S>> {
    return (value): value is Of<S> =>
        isRecord(value) && Object.entries(shape).every(([name, check]) => check(Object.hasOwn(value, name) ? value[name] : undefined));
}

/** A message by its `kind`; one of a kind that is not in the table is none. */
export function kinds<K extends Readonly<Record<string, Shape>>>(
    table: K,
): Check<{ [N in keyof K]: { readonly kind: N } & Of<K[N]> }[keyof K]> {
    const checks = new Map(Object.entries(table).map(([kind, shape]) => [kind, object(shape)]));
    return (value): value is never => {
        if (!isRecord(value) || !Object.hasOwn(value, 'kind') || typeof value['kind'] !== 'string') return false;
        return checks.get(value['kind'])?.(value) ?? false;
    };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
    return typeof value === 'object' && value !== null && !Array.isArray(value);
}
