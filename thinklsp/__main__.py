"""`python -m thinklsp` and the `thinklsp` command. Without a subcommand it is the language server."""

# No `__future__` here: with `python -m` it would come from the folder that we are started in.
import os
import sys


def main() -> int:
    _forget_working_directory()
    # Nothing is imported before the search path is safe. An editor does not wait for the command line to be understood.
    if sys.argv[1:] in ([], ["--stdio"]):
        from thinklsp.cli.serve_stdio import serve  # noqa: PLC0415 - see above

        return serve()
    from thinklsp.cli.logs import log_to_stderr  # noqa: PLC0415 - see above
    from thinklsp.cli.main import prepare_streams, run  # noqa: PLC0415 - see above

    can_answer = prepare_streams()
    log_to_stderr()
    if not can_answer:
        sys.stderr.write("thinklsp: standard output is closed, so nothing can be answered.\n")
        return 1
    return run(sys.argv[1:])


def _forget_working_directory() -> None:
    """Editors start us in the opened folder, and `python -m` would import modules that lie there before its own."""
    try:
        here = os.getcwd()
    except OSError:
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if here != package:
        sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]


if __name__ == "__main__":
    sys.exit(main())
