"""The face to terminals: one file per subcommand. Each is imported only when it is asked for."""
