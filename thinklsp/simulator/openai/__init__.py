"""The simulated Responses API. The entry point is `service`."""
