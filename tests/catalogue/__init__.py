"""The comparison of the catalogue of models with public sources: `python -m tests.catalogue`."""
