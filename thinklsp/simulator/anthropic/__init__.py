"""The simulated Anthropic Messages API. The entry point is `service`."""
