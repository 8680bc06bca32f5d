"""Definitions in source text, and the lines that mention a name.

This package uses only the syntax of the text and does not access files.
"""
