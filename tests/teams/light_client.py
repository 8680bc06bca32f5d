"""A WebSocket client that costs little, so that a thousand fit into one test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol


class LightClient:
    """A client that answers the server's requests with null. `failures` contains the server's errors."""

    def __init__(self, port: int, token: str) -> None:
        self._address, self._token = f"ws://127.0.0.1:{port}/", token
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.failures: list[str] = []

    async def __aenter__(self) -> Self:
        self._socket = await connect(
            self._address, subprotocols=[Subprotocol("lsp")],
            additional_headers={"Authorization": f"Bearer {self._token}"},
            compression=None, open_timeout=60, ping_interval=None,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._socket is not None
        assert self._reading is not None
        await self._socket.close()
        await self._reading

    async def initialize(self, folder: Path) -> None:
        folders = [{"uri": folder.as_uri(), "name": "w"}]
        await self.ask("initialize", {"capabilities": {}, "rootUri": None, "workspaceFolders": folders})
        await self._send({"method": "initialized", "params": {}})

    async def command(self, name: str, argument: dict[str, Any]) -> Any:
        """Run a command to its end. A work done token makes the server answer when its turn has ended."""
        token = f"t{len(self._waiting)}"
        return await self.ask(
            "workspace/executeCommand", {"command": name, "arguments": [argument], "workDoneToken": token}
        )

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        number = len(self._waiting) + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        return await answer

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._socket is not None
        await self._socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def _read(self) -> None:
        assert self._socket is not None
        async for text in self._socket:
            message = json.loads(text)
            if "method" in message and "id" in message:
                await self._send({"id": message["id"], "result": None})
            elif "id" in message:
                answer = self._waiting[message["id"]]
                if "error" in message:
                    self.failures.append(str(message["error"]))
                answer.set_result(message.get("result"))
            elif message["method"] == "window/showMessage" and message["params"]["type"] == 1:
                self.failures.append(message["params"]["message"])
