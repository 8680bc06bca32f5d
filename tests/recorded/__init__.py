"""Recorded answers of real services against the vendors' SDKs: `python -m tests.recorded FOLDER`."""
