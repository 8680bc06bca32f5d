/** Describes models for people. Pure functions. */

import type { Model } from './messages';

const PROVIDERS: Record<string, string> = {
    anthropic: 'Anthropic',
    openai: 'OpenAI',
    google: 'Google',
    'openai-compatible': 'Your server',
    simulator: 'Offline',
};

export function providerName(provider: string): string {
    return PROVIDERS[provider] ?? provider;
}

/** Formats the context window and the price, such as `1M context · $5 in, $25 out per million tokens`. */
export function modelFacts({ id, title, window: size, price }: Model): string {
    const facts = [
        title === id ? '' : id,
        size === null ? '' : `${new Intl.NumberFormat('en', { notation: 'compact' }).format(size)} context`,
        price?.output ? `$${price.input} in, $${price.output} out per million tokens` : '',
    ];
    return facts.filter(fact => fact !== '').join(' · ');
}
