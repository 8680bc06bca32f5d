"""The checks of a provider for the doctor report: its key, its address and its model. They cost no tokens."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from thinklsp.core.errors import AuthenticationFailed, HeaderRefused, ThinkLspError
from thinklsp.core.json_bytes import ChunkedBody
from thinklsp.engine.connections import build_endpoint, select_adapter
from thinklsp.engine.engine import Engine
from thinklsp.providers.model_info import Capabilities, ModelInfo, find_contradictions
from thinklsp.settings.access import Access, find_key_source
from thinklsp.settings.model import Provider

PROBE_SECONDS = 3.0
_ADDED_PATHS = {
    "anthropic": r"/v\d\w*(?:/messages)?$",
    "google": r"/v\d\w*(?:/models.*)?$",
    "openai": r"/responses$",
    "openai-compatible": r"/chat/completions$",
}
_MAX_DESCRIPTION_BYTES = 256 * 1024


async def check_key(engine: Engine, provider: Provider, problems: list[str], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await engine.resolve_access(provider)
    except TimeoutError:
        problems.append(_explain_key_timeout(engine, provider, seconds))
        return False
    except ThinkLspError as error:
        problems.append(str(error))
        return False
    return True


def _explain_key_timeout(engine: Engine, provider: Provider, seconds: float) -> str:
    if provider != "auto" and provider != "simulator" and isinstance(find_key_source(provider, engine.user), str):
        return f"The keyring did not respond within {seconds:.0f} seconds. Unlock the keyring and try again."
    problem = f"The key command for {provider} did not finish within {seconds:.0f} seconds."
    return f"{problem} Run the command in a terminal to see why."


def find_url_surplus(host: Access) -> list[str]:
    """Return a sentence if the base URL ends with a part of the path that thinklsp adds itself."""
    surplus = re.search(_ADDED_PATHS[host.provider], urlsplit(host.base_url).path)
    if surplus is None:
        return []
    told = f"The base URL of {host.provider} ends with `{surplus[0]}`, which thinklsp adds itself."
    return [f"{told} Remove `{surplus[0]}` from the end of the base URL."]


async def probe_service(engine: Engine, access: Access, problems: list[str], seconds: float) -> bool:
    """Return True if the service responds to an empty request, even with an HTTP error. The request costs no tokens."""
    try:
        async with asyncio.timeout(seconds):
            async with engine.transport.post(access.base_url, {}, ChunkedBody(())):
                return True
    except (ThinkLspError, TimeoutError) as error:
        reason = str(error) or f"There was no response within {seconds:.0f} seconds."
        problems.append(f"{access.provider} cannot be reached. {reason}")
        return False


async def query_model(
    engine: Engine, provider: Provider, model: ModelInfo, deadline: float, problems: list[str]
) -> tuple[Capabilities | None, bool]:
    """Query the service for the model's capabilities. The second result is False if the service rejects the key or the
    model."""
    access = await engine.resolve_access(provider)
    if access is None:
        raise AssertionError("only the simulator has no host")
    adapter, endpoint = select_adapter(provider, access), build_endpoint(access)
    query = adapter.encode_model_query(endpoint, model.id)
    try:
        async with asyncio.timeout_at(deadline), engine.transport.get(*query) as answer:
            status, headers, body = answer.status, answer.headers, await answer.read(_MAX_DESCRIPTION_BYTES)
    except HeaderRefused as error:
        # Only this request contains the key and the user's headers, so the connection check cannot detect invalid ones.
        problems.append(f"{error} {_format_key_hint(access)}")
        return None, False
    except (ThinkLspError, TimeoutError):
        # The service has responded to the empty request, so turns can run even if listing its models takes too long.
        return None, True
    failure = adapter.parse_failure(status, headers, body, model.id) if status >= 400 else None
    is_wrong_key = isinstance(failure, AuthenticationFailed) and status != 403
    if is_wrong_key or adapter.is_unknown_model(status, body, model.id):
        problems.append(endpoint.hide_secrets(str(failure)))
        return None, False
    capabilities = adapter.parse_capabilities(body) if status == 200 else None
    problems.extend(find_contradictions(model, capabilities) if capabilities else ())
    if capabilities is not None and capabilities.models == ():
        problems.append(f"The server at {access.base_url} has no models. Load a model on the server.")
        return capabilities, False
    lists_models = provider == "openai-compatible"
    if (
        capabilities is None
        and (status == 404 or (lists_models and status < 400))
        and (hint := _suggest_url_fix(provider, access))
    ):
        problems.append(f"{access.provider} did not return a list of its models (HTTP status {status}). {hint}")
        return None, not lists_models or bool(model.id)
    return capabilities, True


def _format_key_hint(access: Access) -> str:
    headers = f" and the headers of {access.provider} in your config.toml" if access.headers else ""
    return f"Check the key from {access.source}{headers} for line breaks and quotation marks."


def _suggest_url_fix(provider: Provider, access: Access) -> str:
    """Return advice if the base URL looks wrong, or an empty string otherwise."""
    if provider in ("anthropic", "google") or (provider == "openai" and urlsplit(access.base_url).path):
        return ""
    return "Check the base URL, which usually ends in `/v1`."
