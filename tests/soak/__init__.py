"""The soak test: hours of use with faults, during which no resource may grow. Run it with `python -m tests.soak`."""
