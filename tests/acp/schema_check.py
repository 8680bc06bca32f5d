"""The published schema of ACP, made strict: what a message must be, by its direction and its method.

The schema allows any further member. Here an object has no other members than those that its definition names, because
an agent may add its own only to `_meta`. Shares no code with the product.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator

Json = Any
Part = Literal["Request", "Response", "Notification"]
PATH = Path(__file__).parent / "schema" / "schema.json"
_COMBINING = {"$ref", "allOf", "anyOf", "oneOf", "properties"}
_CLOSED = {"unevaluatedProperties", "additionalProperties"}
# The schema lets a client go on with kinds of a later version; an agent of this version has none to send.
_LATER = {"CreateElicitationRequest", "CreateElicitationResponse"}
_MEMBERS = {
    "request": {"jsonrpc", "id", "method", "params"},
    "notification": {"jsonrpc", "method", "params"},
    "result": {"jsonrpc", "id", "result"},
    "error": {"jsonrpc", "id", "error"},
}


def find_faults(message: Json, asked: str | None = None, *, sender: Literal["agent", "client"] = "agent") -> list[str]:
    """Return what is wrong with a message by itself. `asked`: the method of the request that a response answers."""
    if not isinstance(message, dict):
        return [f"a message that is not an object: {message!r:.200}"]
    kind = kind_of(message)
    faults = [f"{kind}: member {name!r}" for name in message if name not in _MEMBERS[kind]]
    faults += [f"{kind}: no member {name!r}" for name in _MEMBERS[kind] - {"params"} if name not in message]
    if message.get("jsonrpc") != "2.0":
        faults.append(f"jsonrpc is {message.get('jsonrpc')!r}")
    if kind in ("request", "result", "error") and not _is_id(message.get("id")):
        faults.append(f"id is {message.get('id')!r}")
    return faults + _body_faults(message, kind, asked, sender)


def kind_of(message: Json) -> str:
    """Return `request`, `notification`, `result` or `error`."""
    if "method" in message:
        return "request" if "id" in message else "notification"
    return "error" if "error" in message else "result"


def _body_faults(message: Json, kind: str, asked: str | None, sender: str) -> list[str]:
    other = "client" if sender == "agent" else "agent"
    if kind == "error":
        return _told("error", _validator("Error"), message["error"])
    if kind == "result":
        if asked is None:
            return ["a result that nobody asked for"]
        name = methods().get((sender, asked, "Response"))
        return [f"a result of {asked}"] if name is None else _told(asked, _validator(name), message.get("result"))
    method = message["method"]
    part: Part = "Request" if kind == "request" else "Notification"
    side = "protocol" if str(method).startswith("$/") else other
    name = methods().get((side, method, part))
    if name is None:
        return [f"{kind} {method!r} is not of this protocol"]
    params = message.get("params")
    if name == "SessionNotification" and (narrowed := _narrow(params)) is not None:
        return _told(method, narrowed, params)
    return _told(method, _validator(name), params)


def _told(where: str, validator: Draft202012Validator, value: Json) -> list[str]:
    """Return the faults of a value. A check takes milliseconds, so a value like a valid one before is not checked."""
    shape = id(validator), json.dumps(_shape(value))  # Validators are never deleted.
    if shape in _valid_shapes:
        return []
    faults = [f"{where} {error.json_path}: {error.message:.300}" for error in validator.iter_errors(value)]
    if not faults:
        _valid_shapes.add(shape)
    return faults


_valid_shapes: set[tuple[int, str]] = set()


def _shape(value: Json) -> Json:
    """Return the value with one text for all that the schema does not name. It demands only that some exist."""
    if isinstance(value, dict):
        return {name: _shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return "…" if isinstance(value, str) and value and value not in _named_texts() else value


@cache
def _named_texts() -> frozenset[str]:
    """Return all texts in the schema's constants and enumerations."""
    found: set[str] = set()
    waiting: list[Json] = [read_schema()["$defs"]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            found |= {text for text in (part.get("const"), *part.get("enum", ())) if isinstance(text, str)}
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return frozenset(found)


def _is_id(value: Json) -> bool:
    return value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


@cache
def methods() -> dict[tuple[str, str, str], str]:
    """Return the definitions by the side that handles them, the method and the part."""
    found = {}
    for name, definition in read_schema()["$defs"].items():
        if "x-method" in definition:
            part = next(part for part in ("Request", "Response", "Notification") if name.endswith(part))
            found[definition["x-side"], definition["x-method"], part] = name
    return found


@cache
def read_schema() -> Json:
    return json.loads(PATH.read_text("utf-8"))


@cache
def update_kinds() -> dict[str, int]:
    """Return the kinds of session updates and the place of each in the schema."""
    variants = read_schema()["$defs"]["SessionUpdate"]["oneOf"]
    return {variant["properties"]["sessionUpdate"]["const"]: place for place, variant in enumerate(variants)}


@cache
def _strict_definitions() -> Json:
    definitions = deepcopy(read_schema()["$defs"])
    for name, definition in definitions.items():
        if name in _LATER:
            definition["anyOf"] = [variant for variant in definition["anyOf"] if variant.get("title") != "other"]
        _close(definition)
    return definitions


def _close(schema: Json) -> None:
    """Forbid further members of every object that is a member or an item of another one."""
    if isinstance(schema, list):
        for item in schema:
            _close(item)
    elif isinstance(schema, dict):
        inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
        for member in inner:
            if isinstance(member, dict) and _COMBINING & member.keys() and not _CLOSED & member.keys():
                member["unevaluatedProperties"] = False
        for name, value in schema.items():
            if name == "properties":
                _close(list(value.values()))
            elif name in ("allOf", "anyOf", "oneOf", "items", "additionalProperties"):
                _close(value)


@cache
def _validator(name: str) -> Draft202012Validator:
    return _build({"$ref": f"#/$defs/{name}", "unevaluatedProperties": False})


def _build(schema: Json) -> Draft202012Validator:
    return Draft202012Validator({"$defs": _strict_definitions()} | schema)


def _narrow(params: Json) -> Draft202012Validator | None:
    """Return a validator for one kind of update, which names the fault instead of eleven kinds that do not match."""
    update = params.get("update") if isinstance(params, dict) else None
    kind = update.get("sessionUpdate") if isinstance(update, dict) else None
    place = update_kinds().get(kind) if isinstance(kind, str) else None
    return None if place is None else _update_validator(place)


@cache
def _update_validator(place: int) -> Draft202012Validator:
    definition = deepcopy(_strict_definitions()["SessionNotification"])
    variant = {"$ref": f"#/$defs/SessionUpdate/oneOf/{place}", "unevaluatedProperties": False}
    definition["properties"]["update"] = variant
    return _build(definition | {"unevaluatedProperties": False})
