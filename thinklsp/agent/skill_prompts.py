"""The list of skills in prompts, and the skills that the user chose for a prompt.

The list contains names and descriptions only. It is sent with the first prompt of a session, and again only if the list
changed or a compaction removed it, so that earlier messages and the prompt cache stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from thinklsp.agent.instruction_files import remove_project_instructions
from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, find_compaction_origin
from thinklsp.core.text_safety import escape_invisible
from thinklsp.tools.registry import format_skill
from thinklsp.tools.skill_files import Skill

_OPENING_TAG, _CLOSING_TAG = "<skills", "</skills>"
_INTRODUCTION = (
    "The user has installed these skills, which are instructions for certain kinds of work. If a description fits the "
    "task, read the skill with read_skill before you begin, and follow it unless it contradicts the user's prompt. "
    "This list replaces earlier lists."
)
_NO_SKILLS = "No skill is installed any more. This list replaces earlier lists."
_CHOICE = "The user chose this skill for this prompt. Follow its instructions."
_LIST_PATTERN = re.compile(r'(?:\n\n)?^<skills digest="([0-9a-f]{16})">$.*?^</skills>$', re.DOTALL | re.MULTILINE)
_CHOICE_PATTERN = re.compile(
    r'(?:\n\n)?^<chosen_skill name="[a-z0-9-]+">$.*?^</chosen_skill>$', re.DOTALL | re.MULTILINE
)
_TAG_PATTERN = re.compile(r"<(?=/?(?:chosen_skill|skills)\b)")


def find_sent_list(conversation: Conversation) -> str | None:
    """Return the digest of the latest list of skills that the model can still read, or None if there is no list."""
    for message in reversed(conversation):
        if isinstance(message, AssistantMessage):
            if find_compaction_origin(message) is not None:
                return None
            continue
        for block in reversed(message.blocks):
            if isinstance(block, TextBlock) and (digest := _find_digest(block.text)) is not None:
                return digest
    return None


def _find_digest(text: str) -> str | None:
    """Return the digest of the list at the end of a prompt, before the project's instructions."""
    if _CLOSING_TAG not in text:
        return None
    prompt = remove_project_instructions(text)
    found = _LIST_PATTERN.findall(prompt) if prompt.endswith(f"\n{_CLOSING_TAG}") else ()
    return found[-1] if found else None


def build_skill_list(skills: Sequence[Skill], sent_digest: str | None) -> str:
    """Return the list of skills for the next prompt, or an empty string if the model already has this list.

    A session that never had a skill gets no list.
    """
    lines = [f"- {skill.name}: {_format_description(skill)}" for skill in sorted(skills, key=lambda skill: skill.name)]
    text = "\n".join((_INTRODUCTION, *lines)) if lines else _NO_SKILLS
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if digest == sent_digest or (not lines and sent_digest is None):
        return ""
    return f'{_OPENING_TAG} digest="{digest}">\n{text}\n{_CLOSING_TAG}'


def format_chosen_skill(skill: Skill) -> str:
    """Return the whole text of a skill that the user chose, for the prompt."""
    body = _TAG_PATTERN.sub("&lt;", escape_invisible(format_skill(skill)))
    return f'<chosen_skill name="{skill.name}">\n{_CHOICE}\n\n{body}\n</chosen_skill>'


def remove_skills(prompt: str) -> str:
    """Return a prompt without its list of skills and without the skills that the user chose."""
    return _LIST_PATTERN.sub("", _CHOICE_PATTERN.sub("", prompt))


def _format_description(skill: Skill) -> str:
    """Return the description as one line. A tag in it cannot close the list."""
    return _TAG_PATTERN.sub("&lt;", " ".join(skill.description.split()))
