"""The tools of MCP servers in the form that every provider accepts, the limits on them, and the check of arguments.

One tool that a provider rejects makes every request fail. So a tool that cannot be converted is left out. A converted
schema is empty, or it has one `type` with the keywords of this type, or it has only `anyOf` with such schemas. Each can
also have a description. If this form cannot express a schema, the converted one accepts more values, and the arguments
of a call are checked against the original.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from thinklsp.core.json_codec import encode_json, is_shallow
from thinklsp.core.text_safety import remove_invisible, to_one_line
from thinklsp.mcp_client.server_config import ListedTool, compute_digest
from thinklsp.workers import WorkFailed, run_in_worker

Schema = dict[str, Any]
ToolKey = tuple[str, str]
"""The name of a server in the settings, and the name of one of its tools."""

MAX_TOOL_NAME = 128
"""The longest name that the Model Context Protocol allows for a tool."""
MAX_NAME = 64
"""The longest name that every provider accepts. Providers accept only ASCII letters, digits, `_` and `-`."""
PREFIX = "mcp__"
MAX_TOOLS = 128
MAX_TOOL_BYTES = 32_000
MAX_DEFINITIONS_BYTES = 64_000
MAX_DESCRIPTION_BYTES = 2_000
_MAX_NOTICES_PER_SERVER = 5
_MAX_HASHED_DEPTH = 64

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
# The first `__` after the prefix must be the separator, so that the server and the tool can be told apart.
_PLAIN_SERVER = re.compile(r"(?!.*__)[A-Za-z0-9_-]*[A-Za-z0-9-]")
_PLAIN_TOOL = re.compile(r"[A-Za-z0-9_-]+")
# A plain name must not look like a name with a digest.
_DIGEST_END = re.compile(r"_[0-9a-f]{8}")
_DIGEST_LENGTHS = (8, 16, 32, MAX_NAME - len(PREFIX) - 1)


def is_usable_tool_name(name: str) -> bool:
    """Return True if a user can see the whole name that a server gave to a tool."""
    return 0 < len(name) <= MAX_TOOL_NAME and to_one_line(name) == name


def assign_names(keys: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """Return the unique name under which the model sees each tool, in the order of servers and tools.

    A name is `mcp__SERVER__TOOL`. It depends only on the two parts, so a tool keeps its name if other servers or tools
    come and go.
    """
    names = {key: _build_name(key, _DIGEST_LENGTHS[0]) for key in sorted(set(keys))}
    # Only names that were made to collide share a digest. Each of them gets a longer one.
    for digits in _DIGEST_LENGTHS[1:]:
        counts = Counter(names.values())
        names |= {key: _build_name(key, digits) for key, name in names.items() if counts[name] > 1}
    return names


def _build_name(key: ToolKey, digits: int) -> str:
    server, tool = key
    name = f"{PREFIX}{server}__{tool}"
    is_plain = _PLAIN_SERVER.fullmatch(server) and _PLAIN_TOOL.fullmatch(tool) and len(name) <= MAX_NAME
    if is_plain and not _DIGEST_END.fullmatch(name[-9:]):
        return name
    digest = sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{_OTHER.sub('_', name[: MAX_NAME - digits - 1])}_{digest}"


def hash_tool(tool: ListedTool) -> str | None:
    """Return the hash of everything that the server says about a tool, or None if the tool cannot be hashed."""
    content = {"name": tool.name, **list_content(tool)}
    try:
        return compute_digest(content) if is_shallow(content, _MAX_HASHED_DEPTH) else None
    except (ValueError, TypeError):
        return None


def list_content(tool: ListedTool) -> dict[str, Any]:
    """Return everything that the server says about a tool, except its name."""
    return {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }


@dataclass(frozen=True, slots=True)
class UsableTool:
    """A tool of an MCP server as the model sees it.

    `listed` is the tool as its server listed it. `name`, `description` and `schema` are accepted by every provider.
    """

    listed: ListedTool
    name: str
    description: str
    schema: Mapping[str, Any] = field(hash=False)


def select_tools(tools: Sequence[ListedTool]) -> tuple[tuple[UsableTool, ...], tuple[str, ...]]:
    """Return the tools that a model can use, sorted by name, and notices about the tools that are left out."""
    by_key: dict[ToolKey, list[ListedTool]] = {}
    for tool in tools:
        by_key.setdefault((tool.server, tool.name), []).append(tool)
    usable: list[UsableTool] = []
    reasons: dict[str, list[str]] = {}
    checked: Counter[str] = Counter()
    total, omitted, is_full = 0, 0, False
    for key, name in sorted(assign_names(by_key).items(), key=lambda item: item[1]):
        server = key[0]
        checked[server] += 1
        # A server with very many unusable tools would otherwise use much time.
        if is_full or checked[server] > MAX_TOOLS:
            omitted += 1
            continue
        try:
            built = _build_tool(name, by_key[key])
        except SchemaRefused as refused:
            shown = to_one_line(key[1][:MAX_TOOL_NAME])
            reason = f"The tool `{shown}` of the MCP server `{server}` is left out. {refused}"
            reasons.setdefault(server, []).append(reason)
            continue
        total += len(encode_json([built.name, built.description, built.schema]))
        if is_full := total > MAX_DEFINITIONS_BYTES:
            omitted += 1
            continue
        usable.append(built)
        is_full = len(usable) == MAX_TOOLS
    return tuple(usable), tuple(_build_notices(reasons, omitted))


def _build_notices(reasons: Mapping[str, Sequence[str]], omitted: int) -> Iterator[str]:
    for server, sentences in reasons.items():
        yield from sentences[:_MAX_NOTICES_PER_SERVER]
        if (more := len(sentences) - _MAX_NOTICES_PER_SERVER) > 0:
            yield f"{more} more tools of the MCP server `{server}` are left out for similar reasons."
    if omitted:
        limits = f"{MAX_TOOLS} tools and {MAX_DEFINITIONS_BYTES // 1_000} kB of definitions"
        yield (
            f"{omitted} tools of MCP servers are left out, because a request can contain {limits}. Choose fewer tools "
            "with `tools` and `deny` in the settings of the servers."
        )


def _build_tool(name: str, listed: Sequence[ListedTool]) -> UsableTool:
    """Return the usable form of a tool. Raises SchemaRefused with the reason if there is none."""
    first = listed[0]
    hashes = set(map(hash_tool, listed))
    if None in hashes:
        raise SchemaRefused("Its definition is nested too deeply.")
    if len(hashes) > 1:
        raise SchemaRefused("The server lists several tools of this name.")
    if not is_usable_tool_name(first.name):
        raise SchemaRefused(f"Its name must have 1 to {MAX_TOOL_NAME} visible characters.")
    # The model must not read characters that a user cannot see.
    text = remove_invisible((first.description or first.title)[: 2 * MAX_DESCRIPTION_BYTES]).strip()
    encoded = (text or f"A tool of the MCP server {first.server}.").encode()
    if len(encoded) > MAX_DESCRIPTION_BYTES:
        encoded = encoded[: MAX_DESCRIPTION_BYTES - 3].decode(errors="ignore").rstrip().encode() + "…".encode()
    return UsableTool(first, name, encoded.decode(), convert_schema(first.input_schema))


_MAX_STEPS = 4_000
_MAX_DEPTH = 24
_MAX_INLININGS = 50
_MAX_REFERENCE_DEPTH = 10
_MAX_REFERENCE = 500
_MAX_DESCRIPTION = 1_000
_MAX_VALUE = 200
_MAX_ALTERNATIVES = 300
_MAX_NUMBER = 2**53
_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# The type of a schema without `type` follows from these keywords.
_KEYWORD_TYPES = {
    "properties": "object", "required": "object", "additionalProperties": "object", "items": "array",
    "minLength": "string", "maxLength": "string", "minimum": "number", "maximum": "number",
}  # fmt: skip
# The lower and the upper bound of each type. The bounds of numbers may be negative.
_BOUNDS = {
    "string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"), "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}  # fmt: skip


class SchemaRefused(Exception):
    """The error raised for a tool that cannot be used. The message is a sentence for the user."""


def convert_schema(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a tool's arguments in the form that every provider accepts. Raises SchemaRefused.

    Equal schemas yield equal bytes, even if their keys are ordered differently.
    """
    converter = _Converter(schema)
    choices, description = converter.list_choices(schema)
    objects = [choice for choice in choices if choice.get("type", "object") == "object"]
    if not objects:
        raise SchemaRefused("Its schema does not describe an object with arguments.")
    # OpenAI requires `properties` in the schema of every function.
    united = {"type": "object", "properties": {}, **converter.unite_objects(objects, description)}
    encoded = json.dumps(united, sort_keys=True).encode()
    if len(encoded) > MAX_TOOL_BYTES:
        raise SchemaRefused(f"Its schema is larger than {MAX_TOOL_BYTES // 1_000} kB.")
    result: Schema = json.loads(encoded)
    return result


class _Converter:
    """The conversion of one schema. The work is bounded, even for a hostile schema.

    A node becomes a list of choices, each with one `type` and its keywords. An empty choice accepts every value, and an
    empty list accepts none.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0
        self._open_nodes: list[int] = []
        self._reference_depth = 0
        self._inlinings = 0

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise SchemaRefused("Its schema is too large.")

    def list_choices(self, node: Any) -> tuple[list[Schema], str]:
        """Return the choices of a node and its description. Raises SchemaRefused."""
        self._spend(1)
        if not isinstance(node, Mapping):
            return [] if node is False else [{}], ""
        self._spend(len(node))
        if len(self._open_nodes) >= _MAX_DEPTH:
            raise SchemaRefused(f"Its schema is nested more than {_MAX_DEPTH} levels deep.")
        self._open_nodes.append(id(node))
        choices, description = self._convert_keywords(node), _build_description(node)
        for part, part_description in self._list_parts(node):
            choices, description = self._intersect(choices, part), description or part_description
        self._open_nodes.pop()
        return choices, description

    def _list_parts(self, node: Mapping[str, Any]) -> Iterator[tuple[list[Schema], str]]:
        """Yield the choices that a value must satisfy in addition to the node's own keywords."""
        if "$ref" in node:
            yield self._follow(node["$ref"])
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in node:
                raise SchemaRefused(f"Its schema uses `{key}`, which thinklsp does not support.")
        yield from map(self.list_choices, _get_list(node, "allOf"))
        for key in ("anyOf", "oneOf"):
            if nodes := _get_list(node, key):
                yield self._unite(nodes), ""

    def _follow(self, reference: Any) -> tuple[list[Schema], str]:
        shown = json.dumps(reference[:100]) if isinstance(reference, str) else "a value that is not text"
        if not isinstance(reference, str) or len(reference) > _MAX_REFERENCE or not reference.startswith("#"):
            raise SchemaRefused(f"Its schema refers to {shown}, which is not in the schema itself.")
        target: Any = self._root if reference == "#" or reference.startswith("#/") else None
        for part in unquote(reference).split("/")[1:]:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping | bool):
            raise SchemaRefused(f"Its schema refers to {shown}, which does not exist in the schema.")
        if id(target) in self._open_nodes:
            raise SchemaRefused(f"Its schema refers to itself at {shown}.")
        self._inlinings += 1
        if self._inlinings > _MAX_INLININGS:
            raise SchemaRefused(f"Its schema uses more than {_MAX_INLININGS} references.")
        self._reference_depth += 1
        if self._reference_depth > _MAX_REFERENCE_DEPTH:
            raise SchemaRefused(f"Its schema nests references more than {_MAX_REFERENCE_DEPTH} levels deep.")
        found = self.list_choices(target)
        self._reference_depth -= 1
        return found

    def _convert_keywords(self, node: Mapping[str, Any]) -> list[Schema]:
        given = [node["const"]] if "const" in node else _get_list(node, "enum")
        self._spend(len(given))
        # Providers do not accept the other values in `enum`.
        values = [_simplify_number(value) for value in given if _is_plain_value(value)]
        kinds = _list_types(node) or [kind for kind in _TYPES if any(_has_type(value, kind) for value in values)]
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer" if any(isinstance(value, float) for value in values) or "type" in node else "number")
        choices = [] if kinds else [Schema()]
        for kind in kinds:
            members = [value for value in values if _has_type(value, kind)]
            if members or not values:
                schema = self._convert_object(node) if kind == "object" else self._convert_type(node, kind, members)
                choices += [] if schema is None else [schema]
        return choices

    def _convert_type(self, node: Mapping[str, Any], kind: str, members: Sequence[Any]) -> Schema:
        schema: Schema = {"type": kind}
        if members and kind in ("string", "integer", "number"):
            schema["enum"] = list({(isinstance(value, bool), value): value for value in members}.values())
        elif kind in _BOUNDS:
            schema |= _copy_bounds(node, kind)
        if kind == "array":
            rest = node.get("items")
            items = [*(rest if isinstance(rest, list) else _get_list(node, "prefixItems"))]
            items += [rest] if isinstance(rest, Mapping) else []
            # OpenAI requires `items` in every array.
            schema["items"] = _render(self._unite(items)) or {}
        default = _simplify_number(node.get("default"))
        if default is not None and _is_plain_value(default) and _has_type(default, kind):
            schema |= {"default": default} if default in schema.get("enum", (default,)) else {}
        return schema

    def _convert_object(self, node: Mapping[str, Any]) -> Schema | None:
        """Return the converted schema, or None if no value satisfies a required property."""
        given = node.get("properties")
        given = given if isinstance(given, Mapping) else {}
        required = list(dict.fromkeys(name for name in _get_list(node, "required") if isinstance(name, str)))
        self._spend(len(given) + len(required))
        for name in required:
            if not _PROPERTY_NAME.fullmatch(name):
                shown = json.dumps(name[:100])
                raise SchemaRefused(f"It requires the argument {shown}, whose name the providers do not accept.")
        properties: Schema = {name: {} for name in required if name not in given}
        for name in filter(_PROPERTY_NAME.fullmatch, given):
            choices, description = self.list_choices(given[name])
            if name not in required:
                # An argument that can be omitted need not be null.
                choices = [choice for choice in choices if choice.get("type") != "null"]
            elif not choices:
                return None
            if (value := _render(choices, description)) is not None:
                properties[name] = value
        schema: Schema = {"type": "object"}
        schema |= {key: value for key, value in (("properties", properties), ("required", required)) if value}
        extra = node.get("additionalProperties")
        if not node.get("patternProperties") and (extra is False or isinstance(extra, Mapping)):
            value = _render(*self.list_choices(extra))
            schema |= {} if value == {} else {"additionalProperties": False if value is None else value}
        return schema

    def _unite(self, nodes: Iterable[Any]) -> list[Schema]:
        """Return the choices of values that satisfy at least one of the nodes."""
        found = (self.list_choices(node) for node in nodes)
        return self._join(_describe(each, description) for choices, description in found for each in choices)

    def _join(self, choices: Iterable[Schema]) -> list[Schema]:
        """Return the distinct choices, with the values of similar choices in one."""
        distinct: list[Schema] = []
        for choice in choices:
            self._spend(len(distinct) + 1)
            if "type" not in choice:
                return [{}]
            _add_choice(distinct, choice)
        return distinct

    def _intersect(self, first: list[Schema], second: list[Schema]) -> list[Schema]:
        """Return choices that accept at least the values that both lists accept."""
        if len(first) > 1 and len(second) > 1:
            return first
        return self._join(self._merge(one, other) for one in first for other in second)

    def _merge(self, first: Schema, second: Schema) -> Schema:
        """Return a choice that accepts at least the values that satisfy both choices."""
        ours, theirs = first.get("properties", {}), second.get("properties", {})
        self._spend(1 + len(ours) + len(theirs))
        if "type" not in first or "type" not in second:
            return {**second, **first}
        if first["type"] != second["type"]:
            return first
        merged: Schema = {**second, **first}
        if ours or theirs:
            common = {name: self._merge_properties(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
            merged["properties"] = {**theirs, **ours, **common}
        if required := list(dict.fromkeys((*first.get("required", ()), *second.get("required", ())))):
            merged["required"] = required
        if first.get("additionalProperties") != second.get("additionalProperties"):
            merged.pop("additionalProperties", None)
        return merged

    def _merge_properties(self, first: Schema, second: Schema) -> Schema:
        choices = self._intersect([*_split(first)], [*_split(second)])
        return _render(choices, first.get("description") or second.get("description") or "") or {}

    def unite_objects(self, objects: Sequence[Schema], description: str) -> Schema:
        """Return one object schema that accepts what at least one of the object schemas accepts."""
        properties: dict[str, Schema] = {}
        for name in dict.fromkeys(name for each in objects for name in each.get("properties", ())):
            found = [each["properties"][name] for each in objects if name in each.get("properties", ())]
            described = next((each["description"] for each in found if "description" in each), "")
            properties[name] = _render(self._join(choice for each in found for choice in _split(each)), described) or {}
        groups = list(dict.fromkeys(tuple(each.get("required", ())) for each in objects))
        required = [name for name in groups[0] if all(name in group for group in groups)]
        united: Schema = {"type": "object", "properties": properties}
        united |= {"required": required} if required else {}
        if all(each.get("additionalProperties") is False for each in objects):
            united["additionalProperties"] = False
        # The alternatives differ in what they require, so say it in the description.
        shown = "; or ".join(", ".join(f"`{name}`" for name in group) for group in groups)
        note = f"Required: {shown}." if len(groups) > 1 and all(groups) and len(shown) <= _MAX_ALTERNATIVES else ""
        return _describe(united, f"{description or objects[0].get('description', '')} {note}".strip())


def _render(choices: list[Schema], description: str = "") -> Schema | None:
    """Return the schema with these choices, or None if there is none."""
    if len(choices) > 1:
        return _describe({"anyOf": choices}, description)
    return _describe(choices[0], description) if choices else None


def _split(schema: Schema) -> Sequence[Schema]:
    """Return the choices of a rendered schema."""
    choices: Sequence[Schema] = schema.get("anyOf", [schema])
    return choices


def _add_choice(choices: list[Schema], choice: Schema) -> None:
    """Append a schema to the choices, or add its values to an equal choice."""
    for index, existing in enumerate(choices):
        if _strip_description(existing) == _strip_description(choice):
            return
        if existing["type"] == choice["type"] and "enum" in existing and "enum" in choice:
            values = dict.fromkeys((*existing["enum"], *choice["enum"]))
            choices[index] = {"type": choice["type"], "enum": list(values)}
            return
    choices.append(choice)


def _copy_bounds(node: Mapping[str, Any], kind: str) -> Schema:
    """Return the bounds of a type, unless no value satisfies them."""
    bounds: Schema = {}
    for key in _BOUNDS[kind]:
        value = _simplify_number(node.get(key))
        is_count = kind not in ("integer", "number")
        fits = _has_type(value, "number" if kind == "number" else "integer") and _is_plain_value(value)
        if fits and not (is_count and value < 0):
            bounds[key] = value
    return {} if len(bounds) == 2 and [*bounds.values()] != sorted(bounds.values()) else bounds


def _get_list(node: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else ()


def _list_types(node: Mapping[str, Any]) -> list[str]:
    """Return the types that the node names or, if it names none, the one that its keywords imply."""
    given = node.get("type")
    if given is None:
        implied = {kind for key, kind in _KEYWORD_TYPES.items() if key in node}
        return [*implied] if len(implied) == 1 and not {"enum", "const"} & node.keys() else []
    names = given if isinstance(given, list) else [given]
    return [kind for kind in _TYPES if kind in names]


def _has_type(value: Any, kind: str) -> bool:
    """Return True if a simple value has the JSON type."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "number":
        return isinstance(value, int | float)
    return type(value) is {"string": str, "integer": int, "null": type(None)}.get(kind)


def _simplify_number(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_NUMBER
    return int(value) if is_whole else value


def _is_plain_value(value: Any) -> bool:
    """Return True for a value that every provider accepts in `enum`, without hidden characters."""
    if isinstance(value, str):
        return 0 < len(value) <= _MAX_VALUE and remove_invisible(value) == value
    return value is None or (isinstance(value, int | float) and abs(value) <= _MAX_NUMBER)


def _build_description(node: Mapping[str, Any]) -> str:
    """Return the description with notes about the keywords that are not in the result."""
    description = node.get("description")
    parts = [remove_invisible(description[: 2 * _MAX_DESCRIPTION])] if isinstance(description, str) else []
    for key in ("format", "pattern"):
        value = node.get(key)
        if isinstance(value, str) and _is_plain_value(value):
            parts.append(f"{key.title()}: {value}")
    text = " ".join(part.strip() for part in parts).strip()
    return text if len(text) <= _MAX_DESCRIPTION else f"{text[: _MAX_DESCRIPTION - 1].rstrip()}…"


def _describe(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema


def _strip_description(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}


_CHECK_SECONDS = 2.0
_MAX_PROBLEMS = 5
_MAX_PROBLEM = 300
# The keywords that are checked before a call. The others are ambiguous or slow, and the server checks them itself.
_CHECKED_KEYWORDS = (
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "items",
    "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "prefixItems", "properties", "required",
    "type",
)  # fmt: skip


async def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return sentences about wrong arguments, with which the model can correct its call, or None if none is wrong.

    The schema is the one that the server listed. It can demand endless work, so a worker process checks the arguments.
    """
    try:
        return " ".join(await run_in_worker(_CHECK_SECONDS, find_problems, schema, arguments)) or None
    except (WorkFailed, RecursionError):
        # The schema is invalid or too complicated. The server checks its arguments itself.
        return None


def find_problems(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of the first problems. Raises an exception of jsonschema for an invalid schema."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - it comes with the MCP SDK
    from referencing import Registry  # noqa: PLC0415 - it comes with jsonschema

    known = Draft202012Validator.VALIDATORS
    checks = {keyword: known[keyword] for keyword in _CHECKED_KEYWORDS}
    # Several choices of `oneOf` may match, because their other keywords are not checked.
    checks["oneOf"] = known["anyOf"]
    checker = validators.create({}, checks, type_checker=Draft202012Validator.TYPE_CHECKER)
    # The registry is empty, so that no reference is fetched from the network.
    problems: dict[str, None] = {}
    for error in checker(schema, registry=Registry()).iter_errors(arguments):
        place = error.json_path.removeprefix("$").removeprefix(".")
        text = to_one_line(f"The argument `{place}`: {error.message}" if place else error.message)
        problems[text if len(text) <= _MAX_PROBLEM else f"{text[:_MAX_PROBLEM]}…"] = None
        if len(problems) == _MAX_PROBLEMS:
            break
    return [f"{problem}." for problem in problems]
