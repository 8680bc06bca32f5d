"""A session survives every change of provider and model; what only its issuer may read stays with the issuer."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from tests.e2e.conftest import Begin
from tests.support.services import WAYS, Service, sealed_in
from thinklsp.agent.request_fallbacks import NEVER_NOTICE


@pytest.mark.parametrize("seed", [1, 2])
async def test_one_session_goes_through_all_of_them_and_back(begin: Begin, seed: int) -> None:
    service = Service()
    outside = await begin(files={"app.py": "x = 1\n" * 30}, provider=service)
    names = [*WAYS, *WAYS]
    Random(seed).shuffle(names)
    session: dict[str, str] = {}
    sealed: dict[str, set[str]] = defaultdict(set)
    for number, name in enumerate(names):
        way = WAYS[name]
        outside.client.editor.settings = {"provider": way.provider, "model": way.model}
        outside.client.configure(outside.client.editor.settings)
        before = len(service.requests)
        result = await outside.turn("thinklsp.chat", {"prompt": f"Go on, {number}."} | session)
        session = {"sessionId": result["sessionId"]}
        assert (result["stopReason"], result["text"]) == ("end_turn", "Went on."), name
        learned = way.learned and name not in names[:number]
        assert (NEVER_NOTICE in result["notices"]) is learned
        # what stays with others is told, once.
        lost = [notice for notice in result["notices"] if notice != NEVER_NOTICE]
        assert all(notice.startswith(f"{way.model} cannot read the thinking in") for notice in lost)
        since = number - [*reversed(names[:number]), name].index(name)
        others = names[since:number]
        assert (len(lost) == 1) if any(sealed[other] for other in others) else (len(lost) <= len(others))
        first, *_, last = service.requests[before:]
        # Everything that was said by anybody is still there.
        assert all(f"Go on, {earlier}." in first.raw.decode() for earlier in range(number + 1))
        assert first.raw.decode().count("Went on.") == number
        # Coming back, a service finds what it issued itself, and nobody finds what another one did.
        assert sealed[name] <= set(sealed_in(first.body))
        assert not {text for other in sealed if other != name for text in sealed[other]} & set(sealed_in(last.body))
        sealed[name] |= set(sealed_in(last.body))
    assert len([name for name in sealed if sealed[name]]) >= 4


async def test_model_decides_the_provider_by_default(begin: Begin) -> None:
    service = Service()
    outside = await begin(files={"app.py": "x = 1\n"}, provider=service, options={"model": "gpt-6-sol"})
    first = await outside.turn("thinklsp.chat", {"prompt": "Go on."})
    told = await outside.client.command("thinklsp.model", {"value": "gemini-4-argon", "sessionId": first["sessionId"]})
    assert told["effective"] == "gemini-4-argon"
    assert {"claude-opus-5-5", "gpt-6-sol", "gemini-4-argon"} <= set(told["choices"])
    second = await outside.turn("thinklsp.chat", {"prompt": "Go on again.", "sessionId": first["sessionId"]})
    assert [first["text"], second["text"]] == ["Went on.", "Went on."]
    paths = [request.path.rpartition("/")[2] for request in service.requests]
    assert paths[0] == "responses"
    assert "streamGenerateContent" in paths[-1]
