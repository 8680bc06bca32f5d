"""The settings: their schema, their sources, and the rules about which source may set them.

The sources in order of increasing precedence are the defaults, the user's file, the environment, the editor settings,
the session's overrides, and the command's arguments. For some settings, an editor can only choose a stricter value.
Keys, hosts and permissions are read only from the user's file and the environment.
"""
