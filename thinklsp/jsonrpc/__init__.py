"""JSON-RPC 2.0 between thinklsp and an editor, over any framing: messages, errors, reader and writers."""
