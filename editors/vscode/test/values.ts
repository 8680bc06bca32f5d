/** Values that several tests use. */

export const USAGE = {
    inputTokens: 1_000,
    outputTokens: 200,
    thinkingTokens: null,
    cacheReadTokens: 800,
    cacheWriteTokens: null,
    costUsd: 0.0125,
};
export const RESULT = {
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
