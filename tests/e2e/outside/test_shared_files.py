"""User, second program and model change the same files: no line disappears that the model was never shown."""

import pytest

from tests.e2e.conftest import Begin
from tests.support.shared_files import EDITORS, play_sessions

EACH = 10


@pytest.mark.parametrize("number", range(len(EDITORS)), ids=EDITORS)
async def test_unseen_lines_stay(begin: Begin, number: int) -> None:
    outside = await begin(**list(EDITORS.values())[number])
    await play_sessions(outside, 20261128, range(number * EACH, number * EACH + EACH))
