"""The command line. Each subcommand has its own module, which is imported only when the subcommand runs."""
