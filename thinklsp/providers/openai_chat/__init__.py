"""Support for the Chat Completions API of OpenAI and compatible servers."""
