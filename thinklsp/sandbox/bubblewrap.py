"""Support for bubblewrap, with a test of the sandbox, the command line options and a system call filter.

The sandbox contains only the listed folders. System folders and toolchains are read-only, copies of the workspace are
mounted at the original paths, and all other folders are in memory.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

_PROBE_TIMEOUT_SECONDS = 5.0
_INSTALL_HINT = (
    "Install bubblewrap (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; Arch: pacman -S "
    "bubblewrap)."
)
_NAMESPACE_HINT = (
    "This system does not allow user namespaces, which the sandbox needs. Allow them with sysctl "
    "kernel.unprivileged_userns_clone=1 (Debian), sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor "
    "profile for bwrap (Ubuntu), or user.max_user_namespaces above 0 (RHEL), or start your container with them allowed."
)

# Constants for a classic BPF program in the kernel's format. The program rejects system calls that could help a command
# escape the sandbox. It also rejects unusual socket families such as vsock, because a network namespace does not
# isolate all of them.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
# The x32 ABI, which uses different system call numbers on the same machine.
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
# The rejected system calls are add_key, request_key, keyctl, bpf, userfaultfd, perf_event_open, io_uring_setup,
# io_uring_enter, io_uring_register, process_vm_readv, process_vm_writev, kexec_load, kexec_file_load,
# open_by_handle_at, init_module, finit_module, delete_module, swapon and swapoff.
_REJECTED_CALLS = {
    "x86_64": (248, 249, 250, 321, 323, 298, 425, 426, 427, 310, 311, 246, 320, 304, 175, 313, 176, 167, 168),
    "aarch64": (217, 218, 219, 280, 282, 241, 425, 426, 427, 270, 271, 104, 294, 265, 105, 273, 106, 224, 225),
}


@lru_cache(maxsize=8)
def find_sandbox_problem(program: str | None) -> str | None:
    """Return the reason why the sandbox does not work on this machine, with a suggested fix, or None if it works.

    `program` is the path of bubblewrap, or None if it was not found. The first call starts bubblewrap as a test.
    """
    if sys.platform != "linux":
        return "Commands run on Linux only: there is no sandbox for other systems yet."
    if program is None:
        return f"The program bwrap was not found outside the workspace. {_INSTALL_HINT}"
    can_start = _try_sandbox(program)
    if can_start is None:
        return f"The program {program} could not be run. {_INSTALL_HINT}"
    return None if can_start else _NAMESPACE_HINT


@lru_cache(maxsize=8)
def can_disable_namespaces(program: str) -> bool:
    """Return True if bubblewrap can disable user namespaces. This requires version 0.8 or later without setuid."""
    return _try_sandbox(program, "--unshare-user", "--disable-userns") is True


def _try_sandbox(program: str, *more: str) -> bool | None:
    """Start an empty sandbox as a test. Return None if bubblewrap itself does not start."""
    options = ("--unshare-all", *more, "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        result = subprocess.run(
            (program, *options, "--", "/bin/true"), capture_output=True, timeout=_PROBE_TIMEOUT_SECONDS, check=False,
            env={}, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.returncode == 0


def build_filter(machine: str) -> bytes:
    """Build the system call filter for an architecture, as in `os.uname().machine`.

    The filter is empty for unsupported architectures.
    """
    if machine not in _ARCHITECTURES:
        return b""
    rejected = _REJECTED_CALLS[machine]
    # Each instruction has a code, the jump distances for true and false, and an operand.
    unknown, not_permitted, no_family = (
        (_RETURN, 0, 0, _ERROR | number) for number in (errno.ENOSYS, errno.EPERM, errno.EAFNOSUPPORT)
    )
    allowed = (_RETURN, 0, 0, _ALLOW)
    head = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), unknown]
    head += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), unknown]
    calls = [step for number in rejected for step in ((_EQUAL, 0, 1, number), not_permitted)]
    sockets = [(_EQUAL, 1, 0, _SOCKET[machine]), allowed, (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    for family in _FAMILIES.values():
        sockets += [(_EQUAL, 0, 1, family), allowed]
    steps = [*head, *calls, *sockets, no_family]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


# System folders that commands can read.
_SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store",
)  # fmt: skip
# In-memory file systems. `/tmp` and the home folder have the full size, and the others have a quarter of it.
_MEMORY_FOLDERS = ("/tmp", "/run", "/var", "/dev/shm")  # noqa: S108 - mount points inside the sandbox
_SMALL_FOLDER_DIVISOR = 4
# Toolchain folders in the home folder. Commands cannot see the rest of the home folder.
_TOOLCHAIN_FOLDERS = (
    ".cargo", ".rustup", ".pyenv", ".rbenv", ".nvm", ".fnm", ".volta", ".asdf", ".sdkman", ".bun", ".deno", ".dotnet",
    ".ghcup", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/pnpm",
    ".local/share/fnm", ".local/pipx", ".nix-profile", ".julia", ".m2/repository", ".gradle/caches", ".gradle/wrapper",
    ".nuget/packages", ".npm/_cacache", "go/bin", "go/pkg", "miniconda3", "anaconda3", "mambaforge", "miniforge3",
)  # fmt: skip
# Secrets inside visible folders. The names of folders end with a slash.
_MASKED_HOME_PATHS = (".local/share/uv/credentials/", ".julia/servers/")
_MASKED_CARGO_FILES = ("credentials", "credentials.toml")
_MASKED_PATHS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd", "/etc/ssl/private/",
    "/etc/ssh/", "/etc/sudoers", "/etc/sudoers.d/", "/etc/ppp/", "/etc/NetworkManager/", "/etc/wpa_supplicant/",
    "/etc/krb5.keytab", "/etc/machine-id", "/etc/letsencrypt/", "/etc/docker/", "/etc/kubernetes/", "/etc/wireguard/",
)  # fmt: skip
# Settings that root could change despite file permissions, and kernel interfaces that commands do not need.
_PROC_SETTINGS = (
    "sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "driver", "dynamic_debug", "asound",
)  # fmt: skip
_PROC_KERNEL_FILES = ("kcore", "keys", "key-users", "kmsg", "timer_list", "sched_debug", "latency_stats", "kallsyms")
# Environment variables with the paths of toolchains. The user's other variables are not passed to commands.
_TOOLCHAIN_VARIABLES = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PYENV_ROOT", "PYENV_VERSION",
    "NVM_DIR", "JAVA_HOME", "GOROOT", "GOPATH", "DOTNET_ROOT", "RBENV_ROOT", "VOLTA_HOME", "BUN_INSTALL", "DENO_DIR",
)  # fmt: skip
# GOPATH also contains projects, so only the subfolders `bin` and `pkg` are visible.
_GO_VARIABLE, _GO_FOLDERS = "GOPATH", ("bin", "pkg")
_BINARY_FOLDERS = ("bin", "sbin", "shims")
# A folder that contains `.git` or is named `.local` may be a project or contain private files.
_PRIVATE_MARK, _PRIVATE_NAME = ".git", ".local"


@dataclass(frozen=True, slots=True)
class SandboxFolder:
    """A workspace folder in the sandbox. Commands see the folder `copy` at the path `path`.

    The other paths are relative to `path`. `read_only_paths` are missing from the copy and mounted read-only.
    `masked_paths` are hidden, and the paths of folders end with a slash. `replaced_paths` contains pairs of a path and
    the file that replaces it.
    """

    path: str
    copy: str
    read_only_paths: tuple[str, ...] = ()
    masked_paths: tuple[str, ...] = ()
    replaced_paths: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """The parts of the user's machine that determine the contents of the sandbox.

    `empty_file` is mounted over secret files. Commands must not see `hidden_folders`.
    """

    environment: Mapping[str, str]
    home: str
    empty_file: str
    prefixes: tuple[str, ...] = ()
    hidden_folders: tuple[str, ...] = ()


def build_options(
    host: SandboxHost, folders: Sequence[SandboxFolder], cwd: str, *, memory_bytes: int, disable_namespaces: bool
) -> list[str]:
    """Return bubblewrap's options.

    `memory_bytes` is the size limit of in-memory file systems. If `disable_namespaces` is true, commands cannot create
    user namespaces.
    """
    arguments = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    arguments += ["--unshare-user", "--disable-userns"] if disable_namespaces else []
    arguments += ["--hostname", "sandbox"]
    for place in _SYSTEM_FOLDERS:
        arguments += _bind_read_only(place)
    arguments += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    for place in (os.path.join("/proc", name) for name in _PROC_SETTINGS):
        arguments += ["--ro-bind-try", place, place]
    for place in (os.path.join("/proc", name) for name in _PROC_KERNEL_FILES):
        arguments += _mask_path(place, host.empty_file)
    for place in _MEMORY_FOLDERS:
        size = memory_bytes if place == _MEMORY_FOLDERS[0] else memory_bytes // _SMALL_FOLDER_DIVISOR
        arguments += ["--size", str(size), "--tmpfs", place]
    arguments += ["--dir", "/var/tmp", "--size", str(memory_bytes), "--tmpfs", host.home]  # noqa: S108 - inside the sandbox
    places = [folder.path for folder in folders]
    for prefix in _find_toolchains(host, places):
        arguments += ["--ro-bind", prefix, prefix]
    for mask in _list_masked_paths(host):
        arguments += _mask_path(mask, host.empty_file)
    for folder in sorted(folders, key=lambda folder: folder.path):
        arguments += _mount_workspace_folder(folder, host.empty_file)
    for place in host.hidden_folders:
        if os.path.isdir(place) and any(is_same_or_parent(shown, place) for shown in (*_SYSTEM_FOLDERS, *places)):
            arguments += ["--tmpfs", place, "--remount-ro", place]
    for name, value in build_environment(host).items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--remount-ro", "/", "--chdir", cwd]


def _mount_workspace_folder(folder: SandboxFolder, empty_file: str) -> list[str]:
    arguments = ["--bind", folder.copy, folder.path]
    for path in (os.path.join(folder.path, each) for each in folder.read_only_paths):
        arguments += ["--ro-bind", path, path]
        for socket in _find_sockets(path):
            arguments += ["--ro-bind", empty_file, socket]
    for path in folder.masked_paths:
        arguments += _mask_path(os.path.join(folder.path, path), empty_file)
    for path, file in folder.replaced_paths:
        arguments += ["--ro-bind", file, os.path.join(folder.path, path)]
    return arguments


def list_memory_folders(host: SandboxHost) -> tuple[str, ...]:
    """Return the paths of the writable in-memory file systems."""
    return (*_MEMORY_FOLDERS, host.home)


def build_environment(host: SandboxHost) -> dict[str, str]:
    path = [entry for entry in host.environment.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    toolchain_variables = {name: host.environment[name] for name in _TOOLCHAIN_VARIABLES if name in host.environment}
    return {
        "PATH": os.pathsep.join(path) or os.defpath,
        "HOME": host.home,
        "TMPDIR": "/tmp",  # noqa: S108 - inside the sandbox
        "LANG": host.environment.get("LANG", "C.UTF-8"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        # Python compares the times of compiled and source files only to the second, so it would miss a second edit
        # within the same second.
        "PYTHONDONTWRITEBYTECODE": "1",
        **toolchain_variables,
    }


def _find_toolchains(host: SandboxHost, workspace: Sequence[str]) -> list[str]:
    """Return the toolchain folders that commands can read.

    They come from `PATH`, the interpreter and well-known places.
    """
    candidates = [os.path.join(host.home, name) for name in _TOOLCHAIN_FOLDERS]
    candidates += host.prefixes
    entries_by_name = {
        name: host.environment.get(name, "").split(os.pathsep) for name in ("PATH", *_TOOLCHAIN_VARIABLES)
    }
    candidates += [_resolve_toolchain_folder(entry) for entry in entries_by_name.pop("PATH") if os.path.isabs(entry)]
    candidates += [os.path.join(entry, name) for entry in entries_by_name.pop(_GO_VARIABLE) for name in _GO_FOLDERS]
    candidates += [entry for entries in entries_by_name.values() for entry in entries]
    folders = dict.fromkeys(
        os.path.realpath(place) for place in candidates if os.path.isabs(place) and os.path.isdir(place)
    )
    return sorted(place for place in folders if _is_toolchain(place, host, workspace))


def _resolve_toolchain_folder(entry: str) -> str:
    """Return the parent of a `bin` folder, or the folder itself if the parent may contain private files."""
    above = os.path.dirname(os.path.realpath(entry))
    if os.path.basename(entry) not in _BINARY_FOLDERS or os.path.basename(above) == _PRIVATE_NAME:
        return entry
    return entry if os.path.lexists(os.path.join(above, _PRIVATE_MARK)) else above


def _find_sockets(folder: str) -> Iterator[str]:
    """Yield the sockets and pipes in a folder tree, because commands could send data out through them."""
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                    yield path


def _list_masked_paths(host: SandboxHost) -> Iterator[str]:
    yield from _MASKED_PATHS
    yield from (os.path.join(host.home, name) for name in _MASKED_HOME_PATHS)
    for cargo in {os.path.join(host.home, ".cargo"), host.environment.get("CARGO_HOME", "/")}:
        yield from (os.path.join(os.path.realpath(cargo), name) for name in _MASKED_CARGO_FILES)


def _is_toolchain(place: str, host: SandboxHost, workspace: Sequence[str]) -> bool:
    """Return True if the folder is not visible yet and contains neither the home folder nor a workspace folder."""
    if any(is_same_or_parent(system, place) for system in (*_SYSTEM_FOLDERS, *workspace)):
        return False
    private = (host.home, *workspace, *host.hidden_folders)
    return place.count("/") > 1 and not any(is_same_or_parent(place, other) for other in private)


def is_same_or_parent(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _bind_read_only(place: str) -> list[str]:
    if os.path.islink(place):
        return ["--symlink", os.readlink(place), place]
    return ["--ro-bind", place, place] if os.path.isdir(place) else []


def _mask_path(place: str, empty_file: str) -> list[str]:
    """Return the options that hide a path.

    Missing paths need no options. Links need none either, because they do not reveal hidden paths.
    """
    path = place.rstrip("/")
    if os.path.islink(path) or not os.path.lexists(path):
        return []
    if os.path.isdir(path):
        # Make the folder read-only, because a command could fill the memory with files in it.
        return ["--tmpfs", path, "--remount-ro", path] if place.endswith("/") else []
    return ["--ro-bind", empty_file, path]
