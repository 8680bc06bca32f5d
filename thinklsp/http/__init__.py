"""The HTTP client for all providers, including proxies, retries and server-sent events."""
