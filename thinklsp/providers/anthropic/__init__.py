"""The Messages API of Anthropic, and servers that speak it."""
