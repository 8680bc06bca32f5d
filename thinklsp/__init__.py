"""A language server that runs an AI coding assistant.

The packages, from the lowest layer to the highest (see ARCHITECTURE.md):

- `core`: data types and pure functions
- `http`: the HTTP client
- `providers`: request and response formats
- `workspace`: the files that a turn may read and change
- `settings`, `tools`, `sessions`
- `offline`: the offline model, which plays scenario files
- `agent`: the turn loop
- `engine`: turns and sessions in one process
- `lsp`: the language server
- `cli`: the command line
"""

__version__ = "0.2.0"
