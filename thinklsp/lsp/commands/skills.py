"""The command that lists the skills that the user can choose for a prompt."""

from __future__ import annotations

import asyncio

from lsprotocol.types import ExecuteCommandParams

from thinklsp.engine.instructions import describe_skills, find_all_skills
from thinklsp.engine.results import Result
from thinklsp.lsp.editor.arguments import NoArguments, parse_arguments
from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.skills")
    async def list_skills(params: ExecuteCommandParams) -> Result:
        parse_arguments(NoArguments, params)
        assistant = await server.load()
        config_path, view = assistant.engine.user.path, assistant.snapshots.create_disk_view(is_quiet=True)
        return describe_skills(await asyncio.to_thread(find_all_skills, view, config_path), config_path)
