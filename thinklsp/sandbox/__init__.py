"""The room in which commands run: a system that can only be read, a workspace that is a copy, no network, no way out.

`enter` is the program that goes in; `room` says what is there, `bubblewrap` whether there can be one, `process` runs a
command to its end. Standard library only; it knows nothing of models or editors.
"""
