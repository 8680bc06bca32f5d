"""Support for OpenAI's Responses API and for compatible servers."""
