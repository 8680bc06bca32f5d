"""The client of MCP servers, which provide tools from outside thinklsp.

Everything that a server sends is untrusted. The package checks and limits it before a model or a user sees it.
"""
