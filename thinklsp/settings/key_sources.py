"""Keys that are not in the environment: printed by a command of the user's, or kept in the system's keyring."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import subprocess
import sys
import threading
import time
from contextlib import suppress

from thinklsp.core.errors import SettingsError
from thinklsp.core.installation import install_command
from thinklsp.settings.user_file import KeyedProvider

KEYRING_REQUIREMENT = "keyring>=25"

# Between two looks whether a key command has ended that has not closed its output.
_LOOK_SECONDS = 0.05
# A locked keyring asks its user for a password.
_KEYRING_SECONDS = 60.0


async def read_keyring(name: KeyedProvider, entry: str, *, seconds: float = _KEYRING_SECONDS) -> str:
    """Return the key that an entry SERVICE/USER of the system's keyring holds.

    Raises SettingsError with a sentence if it holds none, cannot be used or takes longer than `seconds`.
    """
    service, _, user = entry.partition("/")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def settle(made: str | Exception | None) -> None:
        if answer.done():
            return
        if isinstance(made, Exception):
            answer.set_exception(made)
        else:
            answer.set_result(made)

    def read() -> None:
        try:
            made: str | Exception | None = importlib.import_module("keyring").get_password(service, user)
        except Exception as error:  # noqa: BLE001 - backends raise errors of their own, and none may end the thread
            made = error
        # The loop may have ended while the keyring waited for its user.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, made)

    # Backends block, and nothing can interrupt them: a thread that nobody waits for at the end of the process.
    threading.Thread(target=read, daemon=True, name="thinklsp-key").start()
    try:
        async with asyncio.timeout(seconds):
            key = await answer
    except TimeoutError:
        said = f"The keyring did not answer within {seconds:.0f} seconds. Unlock it and try again."
        raise SettingsError("key", said) from None
    except ImportError:
        command = install_command(KEYRING_REQUIREMENT)
        said = f"The key for {name} is in the keyring, which needs one more package. Run {command}."
        raise SettingsError("key", said) from None
    except Exception as error:  # noqa: BLE001 - as above; its text may be anything
        said = f"The keyring cannot be used for the key of {name} ({type(error).__name__})."
        raise SettingsError("key", said) from None
    if not (key or "").strip():
        command = shlex.join((sys.executable, "-m", "keyring", "set", service, user))
        raise SettingsError("key", f"The keyring has no entry {entry} for {name}. Run {command}.")
    return (key or "").strip()


async def run_key_command(name: KeyedProvider, argv: tuple[str, ...], *, seconds: float = 10.0) -> str:
    """The key that the user's command prints. It may wait for the user; it does not outlive this call.

    Raises SettingsError with a sentence when it fails, prints nothing or takes longer than `seconds`.
    """
    failed = SettingsError("key", f"The key command for {name} failed. Run it in a terminal to see why.")
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting is quick; its end is waited for in a thread
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except (OSError, ValueError):
        raise failed from None
    try:
        # Shielded, so that the thread always comes to close what belongs to the process.
        output = await asyncio.shield(asyncio.to_thread(_output, process, seconds))
    finally:
        process.kill()
    if output is None:
        said = f"The key command for {name} did not end within {seconds:.0f} seconds."
        raise SettingsError("key", f"{said} Run it in a terminal to see why.")
    if process.returncode:
        raise failed
    if not (key := output.decode("utf-8", "replace").strip()):
        raise SettingsError("key", f"The key command for {name} printed nothing.")
    return key


def _output(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """What it has printed when it has ended; None when it takes too long, and it is ended then. An agent that it leaves
    behind may hold its output open for long: nobody waits for that."""
    end = time.monotonic() + seconds
    with process:
        try:
            while True:
                # Asked first: all that it wrote can be read then.
                has_ended = process.poll() is not None
                try:
                    return process.communicate(timeout=_LOOK_SECONDS)[0]
                except subprocess.TimeoutExpired as so_far:
                    if has_ended:
                        return so_far.output or b""
                    if time.monotonic() > end:
                        return None
        finally:
            process.kill()
