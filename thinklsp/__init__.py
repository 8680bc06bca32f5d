"""thinklsp: a language server that thinks.

Reading order of the packages, lowest layer first: `core` (data and pure functions), `wire` (bytes), `providers`
(translation to each service), `workspace` (what a turn may see and change), `settings`, `tools`, `sessions`,
`simulator` (the offline stand-in for the services), `agent` (the thinking loop), `engine` (the room where it
all meets), `lsp` (the face to editors), `cli` (the face to terminals). ARCHITECTURE.md draws the map.
"""

__version__ = "0.1.0"
