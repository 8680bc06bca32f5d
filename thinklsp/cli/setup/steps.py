"""The steps of an editor's setup: edits of files, programs to run, and sentences for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from thinklsp.cli.setup.blocks import Block, ConfigPlace, insert_block, remove_block
from thinklsp.cli.setup.files import read_file


@dataclass(frozen=True)
class ConfigEdit:
    """An edit of one file. `edit` gets the file's content and returns the new one; None means that there is no file."""

    path: Path
    root: Path
    edit: Callable[[bytes | None], bytes | None]


@dataclass(frozen=True)
class SetupSteps:
    """Edits of files, then programs to run. `notes` are sentences for the user."""

    edits: tuple[ConfigEdit, ...] = ()
    programs: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def insert(place: ConfigPlace, lines: Iterable[str]) -> ConfigEdit:
    return ConfigEdit(place.path, place.root, partial(insert_block, block=Block(place, tuple(lines))))


def remove(place: ConfigPlace) -> ConfigEdit:
    return ConfigEdit(place.path, place.root, partial(remove_block, place=place))


def refuse_own_entry(path: Path) -> SetupSteps:
    return SetupSteps(notes=(f"{path} has an entry of your own for thinklsp, so nothing was added.",))


def read_own_text(place: ConfigPlace) -> str:
    """Return what the user has in the file, without our block. Bytes that are not UTF-8 are replaced."""
    return (remove_block(read_file(place.path), place) or b"").decode("utf-8", "replace")
