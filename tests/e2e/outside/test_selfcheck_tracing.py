"""What strace writes is read right: arguments whatever they hold, paths from where they are meant, threads apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tracing import Call, Changed, Reached, Started, parse, read_trace, text_of

LINES: dict[str, Call | None] = {
    'openat(AT_FDCWD</w>, "a", O_RDONLY|O_CLOEXEC) = 3</w/a>': Call(
        "openat", ("AT_FDCWD</w>", '"a"', "O_RDONLY|O_CLOEXEC"), "3</w/a>"
    ),
    '17.25 mkdir("a, \\"b\\" (c) = 1", 0700) = -1 EEXIST (File exists)': Call(
        "mkdir", ('"a, \\"b\\" (c) = 1"', "0700"), "-1 EEXIST (File exists)"
    ),
    'execve("/b", ["/b", "x,]"], ["A=1", "B=]"]) = 0': Call("execve", ('"/b"', '["/b", "x,]"]', '["A=1", "B=]"]'), "0"),
    'unlinkat(5</w/a,b)>, "c", 0) = 0': Call("unlinkat", ("5</w/a,b)>", '"c"', "0"), "0"),
    "vfork() = 7": Call("vfork", (), "7"),
    'connect(3<socket:[1]>, {sa_family=AF_INET, sin_addr=inet_addr("::1")}, 16) = 0': Call(
        "connect", ("3<socket:[1]>", '{sa_family=AF_INET, sin_addr=inet_addr("::1")}', "16"), "0"
    ),
    'openat(AT_FDCWD</w>, "a", O_RDONLY <unfinished ...>': Call(
        "openat", ("AT_FDCWD</w>", '"a"', "O_RDONLY <unfinished ...>"), ""
    ),
    "+++ exited with 0 +++": None,
    "": None,
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_taken_apart(line: str) -> None:
    assert parse(line) == LINES[line]


def written(data: bytes) -> str:
    """As strace writes a string."""
    plain = {byte: chr(byte) for byte in range(32, 127)} | {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x09: "\\t"}
    return "".join(plain.get(byte, f"\\{byte:03o}") for byte in data)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_come_back(first: bytes, second: bytes) -> None:
    call = parse(f'1.5 rename("{written(first)}", "{written(second)}") = 0')
    assert call is not None
    assert [text_of(part).encode("utf-8", "surrogateescape") for part in call.arguments] == [first, second]


THREADS = {
    # Numbers begin anew: the first by time has a higher one.
    900: """
1.0 execve("/s", ["/s", "-x"], ["A=1"]) = 0
1.1 openat(AT_FDCWD</w>, "read", O_RDONLY) = 3</w/read>
1.2 openat(AT_FDCWD</w>, "O_CREAT", O_RDONLY) = 3</w/O_CREAT>
1.3 openat(AT_FDCWD</w>, "link", O_WRONLY|O_CREAT, 0600) = 3</real>
1.4 openat(7</w/sub>, "../new", O_RDWR) = -1 ENOENT (No such file or directory)
1.5 mkdir("made", 0700) = 0
1.6 renameat(7</w/sub>, "a", AT_FDCWD</w>, "b") = 0
1.7 symlink("/target", "link") = 0
1.8 fchmod(3</w/\\303\\251>, 0600) = 0
1.9 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 30
2.0 vfork() = 31
2.1 connect(4<socket:[1]>, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
2.2 connect(4<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(81), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0
2.3 sendto(4<socket:[1]>, "sa_family=AF_INET", 17, 0, NULL, 0) = 3
2.4 utimensat(AT_FDCWD</w>, NULL, NULL, 0) = 0
""",  # noqa: E501 - strace writes it so
    31: """
2.05 chdir("/elsewhere") = 0
2.06 execve("/c", ["/c"], []) = -1 ENOENT (No such file or directory)
2.07 unlink("x") = 0
""",
    30: "",
}


def test_a_trace_tells_who_did_what(tmp_path: Path) -> None:
    for number, text in THREADS.items():
        (tmp_path / f"thread.{number}").write_text(text.lstrip())
    trace = read_trace(tmp_path, Path("/w"))
    assert trace.started == [Started(900, "/s", ("/s", "-x"), ("A=1",)), Started(31, "/c", ("/c",), ())]
    assert trace.forked == 1
    assert trace.reached == [Reached(900, "connect", "127.0.0.1:80"), Reached(900, "connect", "::1:81")]
    assert trace.changed == [
        Changed(900, "openat", "/real"),
        Changed(900, "openat", "/w/new"),
        Changed(900, "mkdir", "/w/made"),
        Changed(900, "renameat", "/w/sub/a"),
        Changed(900, "renameat", "/w/b"),
        Changed(900, "symlink", "/w/link"),
        Changed(900, "fchmod", "/w/é"),
        Changed(900, "utimensat", "/w"),
        Changed(31, "unlink", "/elsewhere/x"),
    ]
