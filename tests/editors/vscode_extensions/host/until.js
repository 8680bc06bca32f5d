// Waiting for what tells nobody that it has changed.
const assert = require('node:assert/strict');

const MAX_WAIT_MS = 60_000; // It ends a hang, and judges no time.

exports.until = async function until(holds) {
    const deadline = Date.now() + MAX_WAIT_MS;
    for (;;) {
        const found = await holds();
        if (found) {
            return found;
        }
        assert.ok(Date.now() < deadline, `not within ${MAX_WAIT_MS / 1000} s: ${holds}`);
        await new Promise(resolve => setTimeout(resolve, 50));
    }
};
