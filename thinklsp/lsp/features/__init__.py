"""The handlers for LSP requests and notifications, with one module per feature."""

from thinklsp.lsp.features import code_action, code_lens, completion, hover, lifecycle
from thinklsp.lsp.server import ThinkLspServer


def register_features(server: ThinkLspServer) -> None:
    """Register all handlers with the server."""
    for module in (lifecycle, code_action, code_lens, completion, hover):
        module.register(server)
