"""The language-server layer. No other package uses LSP.

Only a few modules are imported before the server replies to `initialize`.
"""
