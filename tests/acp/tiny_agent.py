"""A tiny agent for the tests of the client: a script of (method to wait for, lines to write) from a file.

In a line `$id` becomes the id of the message that came. Whatever is not in the script is passed over.
"""

import json
import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        steps = json.load(file)
    while steps:
        method, lines = steps.pop(0)
        identity = None
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method", "answer") == method:
                identity = message.get("id")
                break
        for line in lines:
            text = line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0"} | line, ensure_ascii=False)
            sys.stdout.write(text.replace('"$id"', json.dumps(identity)) + "\n")
        sys.stdout.flush()
    sys.stdin.read()


main()
