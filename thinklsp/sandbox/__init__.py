"""The sandbox in which commands run, with a read-only system, a copy of the workspace and no network access.

`bubblewrap` checks whether the sandbox works and builds its options. `launcher` is the program that starts bubblewrap.
`process` runs a command until it exits. The package uses only the standard library.
"""
