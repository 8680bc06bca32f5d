"""The connected editor: its features, its documents, and the requests and messages that the server sends."""
