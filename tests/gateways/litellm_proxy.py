"""A real LiteLLM proxy in a process of its own, between thinklsp and the simulated services."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
VERSION = REQUIREMENTS.read_text().strip().rpartition("==")[2]
KEY = "sk-litellm-canary-Pb6vXq9sTe3wRk8zLm2nHd5y"
CLAUDE, GPT, GEMINI, PLAIN = "claude-opus-5-5", "gpt-6-sol", "gemini-4-argon", "plain-local"
_STARTED = "Uvicorn running on"
_START_SECONDS = 120.0


class LiteLlm:
    """A context manager that runs the proxy. It expects the services on `services_port`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self.services_port = _free_ports(2)
        self._log: list[str] = []
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return "".join(self._log)

    def __enter__(self) -> Self:
        config = self._folder / "litellm.json"  # JSON is valid YAML.
        services = f"http://127.0.0.1:{self.services_port}"
        config.write_text(json.dumps(_config(services)))
        self._process = subprocess.Popen(
            [program(), "--config", str(config), "--host", "127.0.0.1", "--port", str(self.port)],
            cwd=self._folder, env=_variables(self._folder, services),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(_START_SECONDS) or self._process.poll() is not None:
            self.__exit__()
            raise RuntimeError(f"LiteLLM did not start:\n{self.log[-3000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        """Collect the log until the process ends. Set `_ready` then as well, so that `__enter__` does not wait."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as log:
            for line in log:
                self._log.append(line)
                if _STARTED in line:
                    self._ready.set()
        self._ready.set()


def program() -> str:
    """Return the LiteLLM program. Raises RuntimeError if it is missing or of another version than the pinned one."""
    program = os.environ.get("LITELLM") or shutil.which("litellm")
    install = "install it with `pip install -r tests/gateways/requirements.txt` in a virtual environment of its own"
    if program is None or not os.access(program, os.X_OK):
        raise RuntimeError(
            f"These tests need LiteLLM: {install}, and set the environment variable `LITELLM` to its program."
        )
    program = os.path.abspath(program)
    python = os.path.join(os.path.dirname(program), "python")
    told = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('litellm'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    if told != VERSION:
        raise RuntimeError(f"These tests are written for LiteLLM {VERSION}, and `{program}` is {told}: {install}.")
    return program


def _config(services: str) -> dict[str, Any]:
    """Return a usual configuration, with one entry per model. LiteLLM itself drops, retries or pauses no request."""
    models = {
        CLAUDE: {"model": f"anthropic/{CLAUDE}", "api_base": services},
        GPT: {"model": f"openai/{GPT}", "api_base": f"{services}/v1"},
        GEMINI: {"model": f"gemini/{GEMINI}", "api_base": f"{services}/v1beta"},
        PLAIN: {"model": f"hosted_vllm/{PLAIN}", "api_base": f"{services}/v1"},
    }
    return {
        "model_list": [
            {"model_name": name, "litellm_params": {**params, "api_key": "simulated"}}
            for name, params in models.items()
        ],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }


def _variables(folder: Path, services: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # LiteLLM translates prompt cache markers into cached contents of Gemini. With an `api_base`, it requests them
        # from an address that no service has. This minimum is longer than any prompt and so turns the translation off.
        "MINIMUM_PROMPT_CACHE_TOKEN_COUNT": "10000000",
        # The passthrough to Anthropic reads its host and key from these variables.
        "ANTHROPIC_API_BASE": services,
        "ANTHROPIC_API_KEY": "simulated",
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
