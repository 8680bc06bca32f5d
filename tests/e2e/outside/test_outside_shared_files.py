"""User, second program and model change the same files: no line disappears that the model was never shown."""

from tests.e2e.conftest import Begin
from tests.support.shared_files import play_sessions


async def test_unseen_lines_stay(begin: Begin) -> None:
    await play_sessions(await begin(), 20261128, range(30))
