"""What is in the sandbox, as values: bubblewrap's options from the machine as it is and the folders of the workspace.

Nothing is there but what is named: the system and its toolchains to be read, the copies of the workspace at the places
of the originals, and memory for everything else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

# Of the system, to be read.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store")
# Of its own, in memory. What programs write lies in the first one and at home; the others get a quarter of that.
_MEMORY = ("/tmp", "/run", "/var", "/dev/shm")  # noqa: S108 - these are mounts of the sandbox's own
_SMALL = 4
# Of the home folder: where toolchains live. Never the whole of it.
_TOOLCHAINS = (
    ".cargo", ".rustup", ".pyenv", ".rbenv", ".nvm", ".fnm", ".volta", ".asdf", ".sdkman", ".bun", ".deno", ".dotnet",
    ".ghcup", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/pnpm",
    ".local/share/fnm", ".local/pipx", ".nix-profile", ".julia", ".m2/repository", ".gradle/caches", ".gradle/wrapper",
    ".nuget/packages", ".npm/_cacache", "go/bin", "go/pkg", "miniconda3", "anaconda3", "mambaforge", "miniforge3",
)  # fmt: skip
# Secrets that lie between them. A name that ends in a slash is a folder.
_MASKED_AT_HOME = (".local/share/uv/credentials/", ".julia/servers/")
_MASKED_OF_CARGO = ("credentials", "credentials.toml")
_MASKED = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd", "/etc/ssl/private/",
    "/etc/ssh/", "/etc/sudoers", "/etc/sudoers.d/", "/etc/ppp/", "/etc/NetworkManager/", "/etc/wpa_supplicant/",
    "/etc/krb5.keytab", "/etc/machine-id", "/etc/letsencrypt/", "/etc/docker/", "/etc/kubernetes/", "/etc/wireguard/",
)  # fmt: skip
# Where whoever is root sets the machine, rights or not. And what of the kernel is nobody's business.
_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "driver", "dynamic_debug", "asound")
_KERNEL = ("kcore", "keys", "key-users", "kmsg", "timer_list", "sched_debug", "latency_stats", "kallsyms")
# Variables that say where a toolchain lives; nothing else of the environment goes in.
_PASSED = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PYENV_ROOT", "PYENV_VERSION",
    "NVM_DIR", "JAVA_HOME", "GOROOT", "GOPATH", "DOTNET_ROOT", "RBENV_ROOT", "VOLTA_HOME", "BUN_INSTALL", "DENO_DIR",
)  # fmt: skip
# There lie projects, too: these below it are tools.
_GO, _BELOW_GO = "GOPATH", ("bin", "pkg")
_BINARIES = ("bin", "sbin", "shims")
# A folder with programs that holds these, or is called so, is somebody's project or all that somebody has.
_PRIVATE_MARK, _PRIVATE_NAME = ".git", ".local"


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder of the workspace: `copy` stands at `place`. `shown`: paths below it that the copy lacks and that are
    shown as they are; `masked`: paths below it with nothing in them, those of folders ending in a slash; `replaced`:
    paths below it, and the file that is shown in the place of each."""

    place: str
    copy: str
    shown: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """What of the user's machine decides about the room. `nothing`: an empty file that stands where secrets are.
    `hidden`: folders that are nobody's business in there."""

    environment: Mapping[str, str]
    home: str
    nothing: str
    prefixes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def options(machine: Machine, folders: Sequence[Folder], cwd: str, *, memory: int, deep: bool) -> list[str]:
    """Bubblewrap's options. `memory`: bytes that files in memory may take, for each place; `deep`: user namespaces can
    be had, and are switched off inside."""
    made = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    made += ["--unshare-user", "--disable-userns"] if deep else []
    made += ["--hostname", "sandbox"]
    for place in _SYSTEM:
        made += _shown_as_it_is(place)
    made += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    for place in (os.path.join("/proc", name) for name in _SETTINGS):
        made += ["--ro-bind-try", place, place]
    for place in (os.path.join("/proc", name) for name in _KERNEL):
        made += _masked(place, machine.nothing)
    for place in _MEMORY:
        made += ["--size", str(memory if place == _MEMORY[0] else memory // _SMALL), "--tmpfs", place]
    made += ["--dir", "/var/tmp", "--size", str(memory), "--tmpfs", machine.home]  # noqa: S108 - as above
    places = [folder.place for folder in folders]
    for prefix in _toolchains(machine, places):
        made += ["--ro-bind", prefix, prefix]
    for mask in _masks(machine):
        made += _masked(mask, machine.nothing)
    for folder in sorted(folders, key=lambda one: one.place):
        made += _workspace_folder(folder, machine.nothing)
    for place in machine.hidden:
        if os.path.isdir(place) and _is_visible(place, places):
            made += ["--tmpfs", place, "--remount-ro", place]
    for name, value in variables(machine).items():
        made += ["--setenv", name, value]
    return [*made, "--remount-ro", "/", "--chdir", cwd]


def _workspace_folder(folder: Folder, nothing: str) -> list[str]:
    made = ["--bind", folder.copy, folder.place]
    for path in (os.path.join(folder.place, each) for each in folder.shown):
        made += ["--ro-bind", path, path]
        for door in _doors(path):
            made += ["--ro-bind", nothing, door]
    for path in folder.masked:
        made += _masked(os.path.join(folder.place, path), nothing)
    for path, file in folder.replaced:
        made += ["--ro-bind", file, os.path.join(folder.place, path)]
    return made


def in_memory(machine: Machine) -> tuple[str, ...]:
    """Return the places where files in memory can be written."""
    return (*_MEMORY, machine.home)


def variables(machine: Machine) -> dict[str, str]:
    path = [entry for entry in machine.environment.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    passed = {name: machine.environment[name] for name in _PASSED if name in machine.environment}
    return {
        "PATH": os.pathsep.join(path) or os.defpath,
        "HOME": machine.home,
        "TMPDIR": "/tmp",  # noqa: S108 - as above
        "LANG": machine.environment.get("LANG", "C.UTF-8"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        # Compiled code is told from its source by whole seconds; of two edits in one, the second would not count.
        "PYTHONDONTWRITEBYTECODE": "1",
        **passed,
    }


def _toolchains(machine: Machine, workspace: Sequence[str]) -> list[str]:
    """Folders to be read beside the system's: what the path and the interpreter need, and the usual ones at home."""
    wanted = [os.path.join(machine.home, name) for name in _TOOLCHAINS]
    wanted += machine.prefixes
    named = {name: machine.environment.get(name, "").split(os.pathsep) for name in ("PATH", *_PASSED)}
    wanted += [_around(entry) for entry in named.pop("PATH") if os.path.isabs(entry)]
    wanted += [os.path.join(entry, name) for entry in named.pop(_GO) for name in _BELOW_GO]
    wanted += [entry for entries in named.values() for entry in entries]
    found = dict.fromkeys(os.path.realpath(place) for place in wanted if os.path.isabs(place) and os.path.isdir(place))
    return sorted(place for place in found if _is_toolchain(place, machine, workspace))


def _around(entry: str) -> str:
    """What a folder of programs needs besides itself: the one that it lies in, unless more than tools is in there."""
    above = os.path.dirname(os.path.realpath(entry))
    if os.path.basename(entry) not in _BINARIES or os.path.basename(above) == _PRIVATE_NAME:
        return entry
    return entry if os.path.lexists(os.path.join(above, _PRIVATE_MARK)) else above


def _doors(folder: str) -> Iterator[str]:
    """Sockets and pipes: what is only to be read lets words out by them, if somebody listens."""
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                    yield path


def _masks(machine: Machine) -> Iterator[str]:
    yield from _MASKED
    yield from (os.path.join(machine.home, name) for name in _MASKED_AT_HOME)
    for cargo in {os.path.join(machine.home, ".cargo"), machine.environment.get("CARGO_HOME", "/")}:
        yield from (os.path.join(os.path.realpath(cargo), name) for name in _MASKED_OF_CARGO)


def _is_toolchain(place: str, machine: Machine, workspace: Sequence[str]) -> bool:
    """Neither part of what is there already, nor so wide that more than tools would be seen."""
    if any(_holds(system, place) for system in (*_SYSTEM, *workspace)):
        return False
    private = (machine.home, *workspace, *machine.hidden)
    return place.count("/") > 1 and not any(_holds(place, other) for other in private)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _is_visible(place: str, workspace: Iterable[str]) -> bool:
    return any(_holds(shown, place) for shown in (*_SYSTEM, *workspace))


def _shown_as_it_is(place: str) -> list[str]:
    if os.path.islink(place):
        return ["--symlink", os.readlink(place), place]
    return ["--ro-bind", place, place] if os.path.isdir(place) else []


def _masked(place: str, nothing: str) -> list[str]:
    """Nothing where there is something. A link is left: it leads nowhere that is not shown anyway."""
    bare = place.rstrip("/")
    if os.path.islink(bare) or not os.path.lexists(bare):
        return []
    if os.path.isdir(bare):
        # Its owner could change the mode, and fill the memory of the machine.
        return ["--tmpfs", bare, "--remount-ro", bare] if place.endswith("/") else []
    return ["--ro-bind", nothing, bare]
