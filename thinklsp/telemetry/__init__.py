"""The telemetry of a server for many clients: health, metrics and traces.

`prometheus_client` and `opentelemetry` are optional. Only the command line imports the modules that need them, and only
if they are configured.
"""
