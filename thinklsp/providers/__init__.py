"""Adapters that translate between thinklsp's own types and the providers' formats.

This package performs no I/O and does not use a clock or random numbers.
"""
