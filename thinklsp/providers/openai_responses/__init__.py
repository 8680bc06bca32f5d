"""The Responses API of OpenAI, and servers that speak it."""
