"""The turn loop, with its model calls, tool calls, prompts and compaction.

This package does not depend on editors or on the session store.
"""
