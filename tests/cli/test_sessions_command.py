"""`thinklsp sessions`: what is kept is found from the terminal, by id, by its beginning and by folder."""

import asyncio
import json
import os
import re
import stat

import pytest
from rich.cells import cell_len

from tests.support.stored_sessions import (
    SECRET,
    USAGE,
    answer,
    database,
    full_session,
    holding,
    one_turn,
    opened,
    run_sql,
)
from thinklsp.core.messages import AssistantMessage, TextBlock, ToolUseBlock, UserMessage
from thinklsp.sessions.spending import CallUsage
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri


@pytest.fixture
def state(cli):
    folder = cli.home / "state"
    cli.environment["THINKLSP_STATE_DIR"] = str(folder)
    return folder


def here(cli):
    return compute_workspace_key(path_to_uri(str(cli.folder)))


def kept(state, *changes, workspace):
    """Stores a session for each change; their ids."""

    async def keep():
        async with opened(state) as store:
            return [(await store.update((await store.create(workspace)).id, change)).id for change in changes]

    return asyncio.run(keep())


def broken(session):
    """A call without its result."""
    call = AssistantMessage((TextBlock("I look."), ToolUseBlock("a", "read_file", {})), "tool_use")
    conversation = (UserMessage.from_text("Broken prompt."), call, UserMessage.from_text("More."))
    return session.add_user_message("Broken prompt.").replace_conversation(conversation)


def load(inside, *args):
    return json.loads(inside("sessions", *args, "--json").stdout)


def confirm(cli, answer, *args):
    """Answer the question of a deletion; return the exit code and the output."""
    with cli.terminal("sessions", "delete", *args) as terminal:
        terminal.until("permanently? [y/N]")
        terminal.type(answer)
        return terminal.end(), terminal.output


def test_a_folder_without_sessions(inside, state):
    done = inside("sessions", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "--all" in done.stderr
    assert load(inside, "list") == []
    done = inside("sessions", "show")
    assert (done.returncode, done.stderr) == (1, "thinklsp sessions: There are no sessions yet.\n")


def test_list_is_of_this_folder_in_any_spelling_and_all_on_wish(cli, inside, state):
    link = cli.home / "a link"
    link.symlink_to(cli.folder)
    key = compute_workspace_key(f"file://localhost{str(link).replace(' ', '%20')}/")
    [mine] = kept(state, full_session, workspace=key)
    [other] = kept(state, lambda session: one_turn(1, session), workspace="file:///elsewhere")
    done = inside("sessions", "list")
    assert (done.returncode, inside("sessions").stdout) == (0, done.stdout)
    head, row = done.stdout.splitlines()
    assert head.split() == ["id", "title", "model", "steps", "cost", "size", "age"]
    assert row.split()[:3] == [mine[:8], "First", "prompt."]
    assert "$0.5000" in row
    assert "/elsewhere" in inside("sessions", "list", "--all").stdout
    assert [entry["sessionId"] for entry in load(inside, "list", "--all")] == [other, mine]
    # An id is found wherever it is; `last` and none are this folder's.
    assert "prompt 1" in inside("sessions", "show", other[:8]).stdout
    for args in (["last"], [], [mine]):
        assert "First prompt." in inside("sessions", "show", *args).stdout


def test_show_and_export_hold_the_words_and_nothing_sealed(cli, inside, state, tmp_path):
    [mine] = kept(state, full_session, workspace=here(cli))
    shown = inside("sessions", "show", mine).stdout
    assert shown.startswith("# First prompt.\n")
    assert "The end." in shown
    assert "A summary." not in shown
    assert "A summary." in inside("sessions", "show", mine, "--thinking").stdout
    for form in ("markdown", "json"):
        target = tmp_path / form
        done = inside("sessions", "export", mine, "--format", form, "-o", str(target))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        text = target.read_text()
        assert SECRET not in text + shown
        assert "The end." in text
        again = inside("sessions", "export", mine, "-o", str(target))
        assert (again.returncode, target.read_text()) == (1, text)
        assert "already exists" in again.stderr
    assert json.loads((tmp_path / "json").read_text())["id"] == mine


def test_delete_asks_and_is_for_good(cli, inside, state):
    first, second = kept(state, full_session, lambda session: one_turn(2, session), workspace=here(cli))
    denied = inside("sessions", "delete", first)
    refusal = "thinklsp sessions: Nothing was deleted. Use --yes to delete without confirmation.\n"
    assert (denied.returncode, denied.stderr) == (1, refusal)
    assert confirm(cli, "n\n", first)[0] == 1
    code, output = confirm(cli, "y\n", first)
    assert (code, "Deleted “" in output) == (0, True)
    assert "session has this id" in inside("sessions", "show", first).stderr
    assert inside("sessions", "delete", second, "--yes", "--json").returncode == 0
    assert load(inside, "list") == []


def aged(state, days, *ids):
    """As if they had been used last so many days ago."""
    for session_id in ids:
        statement = "UPDATE session SET updated = updated - ? WHERE id = ?"
        run_sql(database(state), statement, days * 86_400 * 10**9, session_id)


def test_old_ones_are_deleted_together_and_for_good(cli, inside, state):
    canary = "canaryQ7xWprivate"
    old = kept(state, *[lambda session: one_turn(canary, session)] * 70, workspace=here(cli))
    [young] = kept(state, full_session, workspace=here(cli))
    [elsewhere] = kept(state, lambda session: one_turn(3, session), workspace="file:///elsewhere")
    assert inside("sessions", "delete", "--older-than", "1d", "--yes").stdout == "No session is that old.\n"
    aged(state, 91, *old, elsewhere)
    for args in (["--older-than", "90"], ["--older-than", "-1d"], ["last", "--older-than", "90d"], ["--all"]):
        assert inside("sessions", "delete", *args).returncode == 2
    denied = inside("sessions", "delete", "--older-than", "90d")
    assert (denied.returncode, "Use --yes" in denied.stderr) == (1, True)
    with cli.terminal("sessions", "delete", "--older-than", "14w") as terminal:
        assert terminal.end() == 0
    code, output = confirm(cli, "n\n", "--older-than", "90d")
    assert (code, "Delete 70 sessions of " in output) == (1, True)
    assert all(session_id[:8] in output for session_id in old)
    assert not any(session_id[:8] in output for session_id in (young, elsewhere))
    assert len(load(inside, "list")) == 71
    code, output = confirm(cli, "y\n", "--older-than", "90d")
    assert (code, "Deleted: 70 sessions of " in output) == (0, True)
    assert holding(state, canary) == []
    assert [name for name in old if holding(state, name)] == []
    assert holding(state, "canary"), "the young one is still there, or this test could not fail"
    done = inside("sessions", "delete", "--older-than", "90d", "--all", "--yes", "--json")
    assert json.loads(done.stdout) == {"deleted": [elsewhere], "kept": []}
    assert [entry["sessionId"] for entry in load(inside, "list", "--all")] == [young]


def test_an_old_one_that_is_in_use_stays(cli, inside, state):
    used, idle = kept(state, *[full_session] * 2, workspace=here(cli))

    async def delete_while_in_use():
        async with opened(state) as store:
            await store.update(used, lambda session: session.add_user_message("Now."))
            aged(state, 91, used, idle)
            return await asyncio.to_thread(inside, "sessions", "delete", "--older-than", "90d", "--yes")

    done = asyncio.run(delete_while_in_use())
    assert (done.returncode, "Deleted: 1 session of " in done.stdout) == (1, True)
    assert "in use by another thinklsp" in done.stderr
    assert [entry["sessionId"] for entry in load(inside, "list")] == [used]


def test_doctor_tells_how_much_is_kept_and_what_to_do_about_it(cli, inside, state):
    kept(state, *[full_session] * 3, workspace=here(cli))
    report = json.loads(inside("doctor", "--json", THINKLSP_PROVIDER="simulator").stdout)
    assert (report["store"]["sessions"], report["store"]["bytes"]) == (3, database(state).stat().st_size)
    assert not any("sessions delete" in problem for problem in report["problems"])
    assert "3 sessions, " in inside("doctor", THINKLSP_PROVIDER="simulator").stdout
    # Pages that nothing is in: only the size of the file is another.
    os.truncate(database(state), (1 << 30) + 1)
    shown = inside("doctor", THINKLSP_PROVIDER="simulator").stdout
    assert "3 sessions, 1.1 GB" in shown
    assert "has grown to 1.1 GB" in shown
    assert "thinklsp sessions delete --all --older-than 90d" in shown


def test_repair_shows_what_it_would_change_and_then_does_it(cli, inside, state):
    [mine] = kept(state, broken, workspace=here(cli))
    wish = inside("sessions", "repair", mine, "--dry-run")
    assert wish.stdout.endswith("Nothing was changed.\n")
    findings = wish.stdout.splitlines()[:-1]
    assert findings
    done = inside("sessions", "repair", mine)
    assert done.stdout.splitlines()[:-1] == findings
    archive = done.stdout.split()[-1]
    # A repair can be undone, and done again.
    assert load(inside, "restore", "--archive", archive)["archiveId"] == archive
    assert load(inside, "show")["archives"] == []
    archive = load(inside, "repair", mine)["archiveId"]
    assert "I look." in inside("sessions", "show", mine, "--archive", archive).stdout
    assert f"--archive {archive}" in inside("sessions", "show", mine).stderr
    after = load(inside, "repair", mine)
    assert (after["findings"], after["repaired"]) == ([], False)
    assert inside("sessions", "repair", mine).stdout == "The session has no problems.\n"


def test_renamed_session_keeps_its_place_in_the_list(cli, inside, state):
    first, second = kept(state, *[full_session] * 2, workspace=here(cli))
    before = load(inside, "list")
    assert load(inside, "rename", first, "A \x1b[2J title") == {"sessionId": first, "title": "A \x1b[2J title"}
    after = load(inside, "list")
    assert [entry["updated"] for entry in after] == [entry["updated"] for entry in before]
    assert [entry["sessionId"] for entry in after] == [second, first]
    assert "\x1b" not in inside("sessions", "rename", "last", "\x1b[2J").stdout
    for args, code in ((["rename", first, " "], 1), (["rename", first], 2), (["rename"], 2)):
        assert inside("sessions", *args).returncode == code


def test_fork_begins_another_at_a_step(cli, inside, state):
    [mine] = kept(state, full_session, workspace=here(cli))
    fork = load(inside, "fork", mine, "--step", "1")
    assert (fork["steps"], fork["forkedFrom"]) == (1, mine)
    shown = inside("sessions", "show", "last").stdout
    assert "First prompt." in shown
    assert "The end." not in shown
    for step in ("9", "-1"):
        assert inside("sessions", "fork", mine, "--step", step).returncode == 1


def test_a_beginning_must_tell_the_session(cli, inside, state):
    ids = kept(state, *[lambda session: one_turn(1, session)] * 3, workspace=here(cli))
    for length in (1, 3):
        assert "at least four characters" in inside("sessions", "show", ids[0][:length]).stderr
    assert "session has this id" in inside("sessions", "show", "").stderr
    assert inside("sessions", "show", ids[0][:8]).returncode == 0
    assert "session has this id" in inside("sessions", "show", "%%%%").stderr
    for args in (["nonsense"], ["delete"], ["fork", "last", "--step", "x"], ["export", "last", "--format", "pdf"]):
        assert inside("sessions", *args).returncode == 2


def test_a_state_folder_that_is_not_used_is_told(inside):
    assert "THINKLSP_STATE_DIR is ignored" in inside("sessions", "list", THINKLSP_STATE_DIR="here").stderr


def test_titles_cannot_steer_a_terminal(cli, state):
    def steer(session):
        return session.add_user_message("\x1b]0;evil\x07 \x1b[31mred").add_step(answer("\x1b[2J"), None, USAGE)

    kept(state, steer, workspace=here(cli))
    for op in ("list", "show", "export"):
        with cli.terminal("sessions", op) as terminal:
            assert terminal.end() == 0
            assert [code for code in ("\x1b]0", "\x1b[2J", "\x1b[31mred") if code in terminal.output] == []


PROMPTS = ("Short?", "日本語のとても長い題名" * 9, "🚀 and 🙂 " * 9, "One word after another " * 9)


def test_a_list_of_many_fits_every_terminal(cli, state):
    """One line for each session, none too long; the id and the beginning of the title are always there."""
    spent = CallUsage("t", "p", "vendor/a-model-with-a-very-long-name-indeed-1", USAGE)

    async def keep():
        async with opened(state) as store:
            for number in range(200):
                workspace = here(cli) if number % 2 else f"file:///a/very/long/path/to/some/other/project{number}"
                session = await store.create(workspace)
                prompt = PROMPTS[number // 2 % len(PROMPTS)]
                await store.update(session.id, lambda now, p=prompt: one_turn(1, now.add_user_message(p)), spent)

    asyncio.run(keep())
    for columns in (30, 60, 80, 100, 160):
        args, count = ([], 100) if columns in (30, 80) else (["--all"], 200)
        with cli.terminal("sessions", "list", *args, columns=columns) as terminal:
            assert terminal.end() == 0
            plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.output)
        head, *rows = plain.splitlines()
        assert len(rows) == count
        assert max(cell_len(row) for row in (head, *rows)) <= columns
        names = head.split()
        assert names[:2] == ["id", "title"]
        assert all(re.match(r"[0-9a-f]{8}  (Short|日本|🚀|One )", row) for row in rows)
        assert columns < 60 or "age" in names
        assert columns < 80 or "cost" in names
        if columns == 160:
            wanted = ["id", "title", "model", "steps", "cost", "size", "age", "folder"]
            assert names == wanted[: 7 + bool(args)]
            assert "e-indeed-1 " in rows[0]
            assert not args or rows[1].rstrip().endswith("project198")


def test_problems_of_the_store_are_told(cli, inside, state):
    folder = state / "sessions"
    folder.mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    (folder / "sessions.db").write_bytes(b"no database" * 500)
    done = inside("sessions", "list")
    assert "corrupt" in done.stderr
    assert resolve_state_folder({"THINKLSP_STATE_DIR": str(state)}) in done.stderr
    asked = inside("ask", "Hello", THINKLSP_PROVIDER="simulator")
    assert asked.returncode == 0
    # It was set aside: nothing is wrong any more.
    assert "corrupt" not in asked.stderr
    report = json.loads(inside("doctor", "--json", THINKLSP_PROVIDER="simulator").stdout)
    assert (report["store"]["kind"], report["store"]["path"]) == ("file", str(folder / "sessions.db"))
