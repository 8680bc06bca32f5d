"""The benchmarks of the real server over stdio, beside other servers and clients: `python -m tests.bench`."""
