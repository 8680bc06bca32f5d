"""Instruction files as values: which say something new, how the model is told, and what is taken away again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.agent.prompts import (
    MAX_FILE_CHARACTERS,
    MAX_PROMPT_CHARACTERS,
    Excerpt,
    InstructionFile,
    build_chat_prompt,
    build_instructions,
    compute_digest,
    extract_user_text,
    find_sent_digests,
    list_enclosing_folders,
    remove_redundant,
)
from thinklsp.core.messages import AssistantMessage, TextBlock, UserMessage


def file(text: str, name: str = "AGENTS.md", *folder: str) -> InstructionFile:
    return InstructionFile("/".join((*folder, name)), name, ("work", *folder), text)


ROOT = file("Be brief.")
DISTINCT: list[tuple[str, list[InstructionFile], list[int]]] = [
    ("one", [ROOT], [0]),
    ("the same under two names", [ROOT, file("Be brief.\n", "CLAUDE.md")], [0]),
    ("the same further in", [ROOT, file("Be brief.", "AGENTS.md", "a")], [0]),
    ("the same beside each other", [file("x", "AGENTS.md", "a"), file("x", "AGENTS.md", "b")], [0, 1]),
    ("a pointer", [ROOT, file("@AGENTS.md\n", "CLAUDE.md")], [0]),
    ("a pointer in words", [ROOT, file("See @./AGENTS.md.", "CLAUDE.md")], [0]),
    ("a pointer to nothing", [file("@AGENTS.md", "CLAUDE.md")], [0]),
    ("a pointer to another folder's", [ROOT, file("@AGENTS.md", "CLAUDE.md", "a")], [0, 1]),
    ("a pointer with more", [ROOT, file("@AGENTS.md\nAnd think.", "CLAUDE.md")], [0, 1]),
    ("nothing", [file(" \n")], []),
]


@pytest.mark.parametrize(("files", "kept"), [row[1:] for row in DISTINCT], ids=[row[0] for row in DISTINCT])
def test_what_is_said_twice_counts_once(files: list[InstructionFile], kept: list[int]) -> None:
    assert remove_redundant(files) == tuple(files[index] for index in kept)


def test_folders_from_the_outermost_in() -> None:
    assert list_enclosing_folders(("a", "b")) == ((), ("a",), ("a", "b"))
    assert len(list_enclosing_folders(("a",) * 1000)) == 33


def test_agreement_is_to_names_and_text() -> None:
    agreed = compute_digest([ROOT])
    assert agreed == compute_digest([replace(ROOT, path="work/AGENTS.md")])
    for other in ([], [file("Be brief!")], [file("Be brief.", "CLAUDE.md")], [ROOT, file("", "CLAUDE.md")]):
        assert compute_digest(other) != agreed
    assert compute_digest([file("ab"), file("c", "x")]) != compute_digest([file("a"), file("bc", "x")])


WORDS = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from('<>/\n"='), max_size=200)
TAGS = st.sampled_from(
    ['<instructions file=x digest="0123456789abcdef">', "</instructions>", "</project_instructions>", "\n"]
)
TEXTS = st.lists(WORDS | TAGS, max_size=6).map("\n".join)


@given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4, unique=True), st.text(max_size=50))
def test_what_is_told_is_known_again_and_taken_away_again(texts: list[str], prompt: str) -> None:
    """No text of a file can end its own quotation, or pass for another file."""
    files = [file(text, f"{number}.md") for number, text in enumerate(texts)]
    told, _ = build_instructions(files, frozenset())
    whole = f"Prompt {prompt}.\n\n{told}"
    assert extract_user_text(whole) == extract_user_text(f"Prompt {prompt}.")
    known = find_sent_digests((UserMessage.from_text(whole), AssistantMessage((TextBlock(told),), "end_turn")))
    assert known == {each.digest for each in files}
    assert build_instructions(files, known) == ("", ())


def test_only_what_is_new_is_told() -> None:
    inner = file("Tabs.", "AGENTS.md", "a")
    first, _ = build_instructions([ROOT], frozenset())
    conversation = (UserMessage.from_text(f"x\n\n{first}"),)
    second, _ = build_instructions([ROOT, inner], find_sent_digests(conversation))
    assert ("Be brief." in second, "Tabs." in second) == (False, True)
    assert "file=a/AGENTS.md" in second
    assert build_instructions([file("Be long.")], find_sent_digests(conversation))[0].count("Be long.") == 1
    # What only looks so is not what was told.
    assert find_sent_digests((UserMessage.from_text(f"{first}\nand more"),)) == frozenset()
    assert find_sent_digests((AssistantMessage((TextBlock(first),), "end_turn"),)) == frozenset()


def test_long_files_are_cut_and_it_is_said() -> None:
    lines = "A rule of the house.\n" * 2000
    files = [file(lines + str(number), f"{number}.md") for number in range(3)]
    text, said = build_instructions(files, frozenset())
    assert len(text) < MAX_PROMPT_CHARACTERS + 2000
    assert all("A rule of the house.\n</instructions>" in part for part in text.split("<instructions ")[1:])
    assert [sentence.partition(" exceeds")[0] for sentence in said] == ["0.md", "1.md", "2.md"]
    assert said[0].endswith("characters are followed.")
    one, cut = build_instructions([file("x" * (MAX_FILE_CHARACTERS + 1))], frozenset())
    assert (one.count("x" * MAX_FILE_CHARACTERS), len(cut)) == (1, 1)


HIDDEN = [chr(code) for code in (0x200B, 0x202E, 0x2066, 0xE0041, 0xFE0F, 0xAD, 0x1B, 0x7F, 0x2028, 0x3164)]


@given(
    st.text(st.characters(categories=("L", "N", "P", "Zs"), max_codepoint=0x2FF), max_size=50), st.sampled_from(HIDDEN)
)
def test_what_nobody_would_see_is_found(text: str, hidden: str) -> None:
    assert file(f"{text}{hidden}x").invisible_characters[-1:] == (f"<U+{ord(hidden):04X}>",)
    assert file(f"Lines\n\tand 🙂 ❤️ {text.replace(chr(0xAD), '')}").invisible_characters == ()


def test_prompt_text_is_recovered_from_stored_message() -> None:
    prompt = build_chat_prompt("Why?", [Excerpt("a.py", 1, 1, "x = 1", 1)], "ask")
    assert extract_user_text(f"{prompt}\n\n{build_instructions([ROOT], frozenset())[0]}") == "Why?"
