// Waiting for what tells nobody that it has changed.
const assert = require('node:assert/strict');

exports.until = async function until(holds) {
    const deadline = Date.now() + 20_000;
    for (;;) {
        const found = await holds();
        if (found) {
            return found;
        }
        assert.ok(Date.now() < deadline, `not within 20 s: ${holds}`);
        await new Promise(resolve => setTimeout(resolve, 50));
    }
};
