"""Hours of use, with faults, in which nothing may grow: `python -m tests.soak`."""
