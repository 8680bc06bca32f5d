/** Formats tokens, costs and times for people. Pure functions. */

import type { Usage } from './messages';

/** Formats usage as `12.3k in (80% cached) · 1.2k out · $0.0123`, without the figures that the provider did not send. */
export function used(usage: Usage): string {
    const { inputTokens, outputTokens, cacheReadTokens, costUsd } = usage;
    const share = inputTokens && cacheReadTokens ? ` (${Math.round((100 * cacheReadTokens) / inputTokens)}% cached)` : '';
    const figures = [
        inputTokens === null ? '' : `${tokens(inputTokens)} in${share}`,
        outputTokens === null ? '' : `${tokens(outputTokens)} out`,
        costUsd ? cost(costUsd) : '',
    ];
    return figures.filter(figure => figure !== '').join(' · ');
}

/** Formats usage in its short form, `$0.0206 · 73% cached`. */
export function spent(usage: Usage): string {
    const { inputTokens, outputTokens, cacheReadTokens, costUsd } = usage;
    const all = (inputTokens ?? 0) + (outputTokens ?? 0);
    const figures = [
        costUsd ? cost(costUsd) : all > 0 ? `${tokens(all)} tokens` : '',
        inputTokens && cacheReadTokens ? `${Math.round((100 * cacheReadTokens) / inputTokens)}% cached` : '',
    ];
    return figures.filter(figure => figure !== '').join(' · ');
}

export function tokens(count: number): string {
    if (count < 1_000) {
        return String(count);
    }
    return count < 999_500 ? `${short(count / 1_000)}k` : `${short(count / 1_000_000)}M`;
}

export function cost(dollars: number): string {
    return dollars > 0 && dollars < 0.0001 ? '< $0.0001' : `$${dollars.toFixed(dollars < 1 ? 4 : 2)}`;
}

/** Formats a duration as `12 s` or `2 min 5 s`. */
export function lasted(milliseconds: number): string {
    const whole = Math.round(milliseconds / 1_000);
    return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** Formats an age as `just now`, `5 min ago`, `3 h ago` or `2 d ago`. */
export function ago(then: string, now: number): string {
    const minutes = Math.floor((now - Date.parse(then)) / 60_000);
    if (!(minutes >= 1)) {
        return 'just now';
    }
    if (minutes < 60) {
        return `${minutes} min ago`;
    }
    return minutes < 24 * 60 ? `${Math.floor(minutes / 60)} h ago` : `${Math.floor(minutes / 60 / 24)} d ago`;
}

function short(value: number): string {
    return value < 10 ? value.toFixed(1).replace(/\.0$/, '') : value.toFixed(0);
}
