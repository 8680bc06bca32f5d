"""The entry point for the `thinklsp` command and `python -m thinklsp`. The default is to start the language server."""

# Do not import from `__future__`, because `python -m` may load a module with that name from the current folder.
import os
import sys


def main() -> int:
    if sys.platform == "win32":
        sys.stderr.write("thinklsp does not run on Windows. Install it in WSL, and open your folder there.\n")
        return 1
    _remove_working_directory()
    # Import modules only after cleaning up the search path. Skip the argument parser if an editor starts the server.
    if sys.argv[1:] in ([], ["--stdio"]):
        from thinklsp.cli.serve_stdio import serve  # noqa: PLC0415 - see above

        return serve()
    if sys.argv[1:] == ["acp"]:
        from thinklsp.cli.serve_stdio import serve_acp  # noqa: PLC0415 - see above

        return serve_acp()
    from thinklsp.cli.logs import log_to_stderr  # noqa: PLC0415 - see above
    from thinklsp.cli.main import prepare_streams, run  # noqa: PLC0415 - see above

    can_answer = prepare_streams()
    log_to_stderr()
    if not can_answer:
        sys.stderr.write("thinklsp: cannot answer, because standard output is closed.\n")
        return 1
    return run(sys.argv[1:])


def _remove_working_directory() -> None:
    """Remove the current folder from the module search path.

    Editors start thinklsp in the open folder. With `python -m`, modules in that folder take precedence.
    """
    try:
        here = os.getcwd()
    except OSError:
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if here != package:
        sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]


if __name__ == "__main__":
    sys.exit(main())
