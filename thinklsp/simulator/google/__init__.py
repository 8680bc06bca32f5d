"""The simulated Gemini API. The entry point is `service`."""
