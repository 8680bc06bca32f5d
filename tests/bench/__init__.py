"""Figures, measured side by side in one run on the real server over stdio: `python -m tests.bench`."""
