"""The commands that create reports: about the settings for a turn and their problems, MCP servers, and skills."""

from __future__ import annotations

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import ThinkLspError
from thinklsp.engine.diagnosis import build_report, run_diagnosis
from thinklsp.engine.instructions import describe_skills
from thinklsp.engine.results import Result
from thinklsp.lsp.editor.arguments import NoArguments, parse_arguments
from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.doctor")
    async def run_doctor(params: ExecuteCommandParams) -> Result:
        parse_arguments(NoArguments, params)
        try:
            assistant = await server.load()
        except ThinkLspError:
            # Report the problem that prevents the engine from loading.
            return await run_diagnosis(server.state.environment, identity=server.state.identity)
        await assistant.refresh()
        preferences, view = assistant.preferences, assistant.snapshots.create_disk_view(is_quiet=True)
        return await build_report(assistant.engine, preferences.editor, preferences.choices, view=view)

    @server.command("thinklsp.mcp")
    async def describe_mcp_servers(params: ExecuteCommandParams) -> Result:
        parse_arguments(NoArguments, params)
        assistant = await server.load()
        await assistant.refresh()
        folders = assistant.snapshots.create_disk_view(is_quiet=True).folders
        return await assistant.engine.mcp_servers.build_report(
            [folder.root for folder in folders], assistant.engine.user
        )

    @server.command("thinklsp.skills")
    async def list_skills(params: ExecuteCommandParams) -> Result:
        parse_arguments(NoArguments, params)
        assistant = await server.load()
        return describe_skills(await assistant.find_skills(), assistant.engine.user.path)
