"""`model`: the file that llama-server serves. `llama(*options)`: a server with it, and an editor that reaches it.

By `.ci/nightly llama` or by hand: the build takes 12 minutes on 2 cores, the tests 2.

    export LLAMA_SERVER=$(tests/llama_server/scripts/build_llama_server.sh FOLDER)
    pip install -r tests/llama_server/requirements.txt && pytest tests/llama_server -n 0
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin, begin
from tests.llama_server.server import LlamaServer, program
from tests.support.outside import Outside

__all__ = ["begin"]

Llama = Callable[..., Awaitable[Outside]]
MODEL = "says"
NAMED = {"model": MODEL}
FILES = {"app.py": "def greet(name):\n    return '🙂 ' + '🙂 nmae'\n", "other.py": "x = 1\n"}


def pytest_configure() -> None:
    """Say what is missing once, and not in every test."""
    try:
        program()
        import gguf  # noqa: F401 - only whether it is there
    except (RuntimeError, ImportError) as error:
        install = "Install gguf: `pip install -r tests/llama_server/requirements.txt`."
        raise pytest.UsageError(install if isinstance(error, ImportError) else str(error)) from None


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.llama_server.model import write_model
    from tests.llama_server.says import SAYS

    path = tmp_path_factory.mktemp("models") / "says.gguf"
    write_model(path, SAYS)
    return path


@pytest.fixture
def llama(begin: Begin, model: Path, tmp_path: Path) -> Llama:
    async def start(*options: str, settings: Any = None, **how: Any) -> Outside:
        server = LlamaServer(tmp_path, *served(model, *options), **how)
        return await begin(
            files=FILES, options={"provider": "openai-compatible", **NAMED, **(settings or {})}, provider=server
        )

    return start


def served(model: Path, *options: str) -> tuple[str, ...]:
    """The words of the program; an option that is given again wins."""
    where = (
        ("--models-dir", str(model.parent)) if "--models-max" in options else ("--model", str(model), "--alias", MODEL)
    )
    return (*where, "--ctx-size", "65536", *options)


async def ask(outside: Outside, case: str, **more: Any) -> Any:
    """One turn in which the model says what `says` has for the case."""
    return await outside.turn("thinklsp.chat", {"prompt": f"case {case}."} | more)
