"""What the program itself can tell about messages, without a model: the goal, the requests, files read and changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from thinklsp.agent.prompts import without_instructions
from thinklsp.agent.summary import Summary, Written, joined, one_line
from thinklsp.agent.transcript import cut
from thinklsp.agent.user_turns import split_turns, words_of
from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, ToolResultBlock, ToolUseBlock

_READ = re.compile(r"(.+), lines (\d+)-(\d+) of \d+\n")
_CHANGES = {"edit_file": "edited", "write_file": "wrote", "rename_file": "renamed", "delete_file": "deleted"}
_DIGEST = 16
_REQUEST_CHARS = 300
_LAST_TEXTS = 3
_TEXT_CHARS = 1_500


def told(messages: Conversation, former: Summary, written: Written | None, notes: str = "") -> Summary:
    """The summary of `messages`, which began with `former`. Without `written` the last texts stand for it, and the
    changes that were made for decisions; `notes` replaces the texts."""
    asked = [without_instructions("\n\n".join(block.text for block in words)) for words in _words(messages)]
    goal = former.goal or next(iter(asked), "")
    later = asked if former.goal else asked[1:]
    requests = joined(former.requests, (cut(" ".join(text.split()), _REQUEST_CHARS) for text in later))
    if written is None:
        decisions = joined(former.decisions_done, () if notes else _changes(messages))
        own = Written(
            failed_attempts=former.failed_attempts,
            next_action=former.next_action,
            open_questions=former.open_questions,
            running_processes=former.running_processes,
            notes=notes or _last_texts(messages),
        )
    else:
        decisions, own = joined(former.decisions_done, written.decisions_done), written
    return Summary(
        goal=goal,
        requests=requests,
        decisions_done=decisions,
        failed_attempts=joined((), own.failed_attempts),
        next_action=one_line(own.next_action),
        open_questions=joined((), own.open_questions),
        running_processes=joined((), own.running_processes),
        files_read=_latest(former.files_read, _files_read(messages)),
        notes=own.notes.strip(),
    )


def _words(messages: Conversation) -> Iterator[tuple[TextBlock, ...]]:
    yield from (words_of(turn[0]) for turn in split_turns(messages).turns)


def _results(messages: Conversation) -> Iterator[tuple[ToolUseBlock, ToolResultBlock]]:
    calls: dict[str, ToolUseBlock] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls |= {call.id: call for call in message.tool_uses}
            continue
        for block in message.blocks:
            if isinstance(block, ToolResultBlock) and block.tool_use_id in calls and not block.is_error:
                yield calls[block.tool_use_id], block


def _files_read(messages: Conversation) -> Iterator[str]:
    """Path and lines, with a digest of the text as it was shown: by it an unchanged file can be known again."""
    for call, result in _results(messages):
        if call.name == "read_file" and (head := _READ.match(result.text)) is not None:
            digest = sha256(result.text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
            yield f"{head[1]}:{head[2]}-{head[3]} (sha256 {digest})"


def _latest(earlier: tuple[str, ...], later: Iterator[str]) -> tuple[str, ...]:
    """The last reading of every place, in the order of reading."""
    found: dict[str, str] = {}
    for entry in (*earlier, *later):
        place = entry.rpartition(" (sha256")[0]
        found.pop(place, None)
        found[place] = entry
    return tuple(found.values())


def _changes(messages: Conversation) -> Iterator[str]:
    for call, _ in _results(messages):
        if call.name in _CHANGES:
            yield f"{_CHANGES[call.name]} {(call.input or {}).get('path', 'a file')}"


def _last_texts(messages: Conversation) -> str:
    said = (message.text.strip() for message in messages if isinstance(message, AssistantMessage))
    texts = [text for text in said if text]
    return "\n\n".join(text[:_TEXT_CHARS] for text in texts[-_LAST_TEXTS:])
