"""What `thinklsp uninstall-data` deletes and leaves in folders that the user has changed."""

import asyncio

from tests.cli.test_uninstall_data import MINE, files, state
from tests.support.stored_sessions import opened

__all__ = ["state"]


def test_other_files_in_the_state_folder_stay(cli, inside, state):
    (state / "notes.txt").write_text("mine")
    (state / "thinklsp.logbook").write_text("mine")
    assert inside("uninstall-data", "--yes").returncode == 0
    assert files(cli) == MINE | {"home/a state/notes.txt", "home/a state/thinklsp.logbook"}
    done = inside("uninstall-data", "--yes")
    assert (done.returncode, done.stdout) == (0, "thinklsp keeps no data on this machine.\n")


def test_other_files_in_a_folder_of_documents_stay(cli, inside, state):
    """A user may keep notes beside the chats, which git then goes on ignoring."""
    folder = cli.folder / ".thinklsp"
    (folder / "review").mkdir()
    for name in ("review/fix.diff", "chat/old.md", "chat/b.talk.md", "chat/notes.md", "prompts.md"):
        (folder / name).write_text("<!-- thinklsp session: 1 -->\n" if name == "chat/old.md" else "mine\n")
    (folder / "review" / ".gitignore").write_text("*\n")
    (folder / "chat" / "linked.chat.md").symlink_to(folder / "prompts.md")
    (folder / "review" / "empty").mkdir()
    shown = inside("uninstall-data", THINKLSP_CHAT_FILE_SUFFIX=".talk.md").stdout
    assert f"{folder}  (chat documents and reviews; other files that stay: 5)" in shown
    assert inside("uninstall-data", "--yes", THINKLSP_CHAT_FILE_SUFFIX=".talk.md").returncode == 0
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert left == {
        "chat", "chat/.gitignore", "chat/notes.md", "chat/linked.chat.md", "prompts.md", "review", "review/.gitignore",
        "review/empty",
    }  # fmt: skip
    # The other workspace had only documents of ours.
    assert not (cli.home / "other project" / ".thinklsp").exists()


def test_a_gitignore_of_the_user_stays(cli, inside, state):
    ignore = cli.folder / ".thinklsp" / "chat" / ".gitignore"
    ignore.write_text("*\n!keep.md\n")
    assert inside("uninstall-data", "--yes").returncode == 0
    assert [path.name for path in ignore.parent.iterdir()] == [".gitignore"]


def test_the_current_folder_is_named(cli, inside, state):
    """It is listed even if its sessions have been deleted; a folder elsewhere is not known then."""
    cli.folder = cli.home / "third"
    (cli.folder / ".thinklsp" / "chat").mkdir(parents=True)
    (cli.folder / ".thinklsp" / "chat" / "c.chat.md").write_text("## You\n")
    shown = inside("uninstall-data").stdout
    assert f"{cli.folder}/.thinklsp  (chat documents and reviews)" in shown
    (cli.folder / ".thinklsp" / "chat" / "c.chat.md").unlink()
    (cli.folder / ".thinklsp" / "mine.txt").write_text("mine")
    assert f"{cli.folder}/.thinklsp" not in inside("uninstall-data").stdout


def test_linked_folder_stays(cli, inside, state):
    """Somebody may keep the chats of several projects in one place."""
    chats = cli.home / "chats"
    (cli.folder / ".thinklsp").rename(chats)
    (cli.folder / ".thinklsp").symlink_to(chats)
    assert inside("uninstall-data", "--yes").returncode == 0
    assert (chats / "chat" / "a.chat.md").exists()


def test_damaged_store_can_be_deleted(cli, inside, state):
    (state / "sessions" / "sessions.db").write_bytes(b"not a database" * 1_000)
    done = inside("uninstall-data", "--yes")
    assert done.returncode == 0
    assert "thinklsp uninstall-data: " in done.stderr
    assert not state.exists()


def test_store_that_cannot_be_opened_can_be_deleted(cli, inside, state):
    (state / "sessions" / "sessions.db").unlink()
    (state / "sessions" / "sessions.db").mkdir()
    done = inside("uninstall-data", "--yes")
    assert "sessions.db is not a file" in done.stderr
    assert not state.exists()


async def test_session_in_use_keeps_everything(cli, state):
    before = files(cli)
    async with opened(state) as store:
        session, *_ = await store.list_sessions(None)
        await store.update(session.id, lambda session: session)
        done = await asyncio.to_thread(cli.run, "uninstall-data", "--yes")
    assert done.returncode == 1
    assert "an editor uses the session “hello”. Close your editors." in done.stderr
    assert files(cli) >= before


def test_settings_are_kept_and_named(cli, inside, state):
    config = cli.home / ".config" / "thinklsp"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("")
    assert str(config) in inside("uninstall-data", "--yes").stdout
    assert (config / "config.toml").exists()
