"""In the place of thinklsp: asks the editor whatever its command `trial.ask` is given, and answers what it answers."""

from __future__ import annotations

from typing import Any

from pygls.lsp.server import LanguageServer

server = LanguageServer("thinklsp-asking", "1")


@server.command("trial.ask")
async def ask(question: dict) -> Any:  # type: ignore[type-arg] # pygls reads the annotation
    """`question`: {method, params} of a request."""
    return _plain(await server.protocol.send_request_async(question["method"], question["params"]))


def _plain(value: Any) -> Any:
    """As it came: pygls makes objects of what it does not know."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    server.start_io()
