"""What the kernel takes from a query's process, should DuckDB itself be broken into.

Two of Linux's own means, both irrevocable and free of privileges: Landlock (files: reading those
that are named, nothing else; no TCP, no signals to other processes) and a seccomp filter (no
sockets, no programs, no processes, no looking into others). Threads that exist already are not
reached by Landlock: confine before DuckDB starts its own. A lake in an object store needs the network,
and what a program reads to use it; all else goes there too. Elsewhere, and on older kernels, what is missing is
left out and :func:`confine` says what held.
"""

import ctypes
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_PATH_BENEATH = 1
_FILES_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""Every right over files that each version of Landlock knows; from 5 on there are 16."""
_TCP = 0b11
_SCOPES = 0b11

_NO_NEW_PRIVILEGES = 38
_SECCOMP_FILTER_MODE = 1
_GET_SECCOMP = 21
_ALL_THREADS = 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x00010000
_LOAD, _EQUAL, _ANY_BIT, _GREATER, _RETURN = 0x20, 0x15, 0x45, 0x25, 0x06

_MACHINES: dict[str, dict[str, int]] = {
    "x86_64": {
        "arch": 0xC000003E, "seccomp": 317, "clone": 56, "clone3": 435,
        "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "sendmsg": 46, "bind": 49,
        "listen": 50, "socketpair": 53, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322,
        "kill": 62, "tkill": 200, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
        "io_uring_setup": 425, "bpf": 321, "keyctl": 250, "add_key": 248, "request_key": 249,
        "unshare": 272, "setns": 308, "mount": 165, "perf_event_open": 298, "userfaultfd": 323,
        "open_by_handle_at": 304, "pidfd_open": 434, "pidfd_getfd": 438, "memfd_create": 319,
    },
    "aarch64": {
        "arch": 0xC00000B7, "seccomp": 277, "clone": 220, "clone3": 435,
        "socket": 198, "connect": 203, "accept": 202, "sendto": 206, "sendmsg": 211, "bind": 200,
        "listen": 201, "socketpair": 199, "execve": 221, "execveat": 281,
        "kill": 129, "tkill": 130, "ptrace": 117, "process_vm_readv": 270,
        "process_vm_writev": 271, "io_uring_setup": 425, "bpf": 280, "keyctl": 219,
        "add_key": 217, "request_key": 218, "unshare": 97, "setns": 268, "mount": 40,
        "perf_event_open": 241, "userfaultfd": 282, "open_by_handle_at": 265, "pidfd_open": 434,
        "pidfd_getfd": 438, "memfd_create": 279,
    },
}  # fmt: skip
_NOT_DENIED = frozenset({"arch", "seccomp", "clone", "clone3"})
_CALLS_OUT = frozenset({"socket", "connect", "sendto", "sendmsg", "bind", "socketpair"})
"""What a client of the network asks for; a name is looked up through a socket that is bound."""

_TO_CALL_OUT = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf",
    "/etc/services", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/run/systemd/resolve",
    "/usr", "/lib", "/lib64", "/dev/urandom", "/dev/null",
)  # fmt: skip
"""What it reads for that: names of hosts, authorities, and libraries that are loaded late."""


def limit(*, memory_mib: int, cpu_seconds: int) -> None:
    """Bound this process's memory and CPU for good, and let it write no file and leave no core."""
    memory = memory_mib << 20
    for kind, bound in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))
    os.nice(5)


def available() -> tuple[str, ...]:
    """Return which fences this machine has, without raising any."""
    if sys.platform != "linux":
        return ()
    libc = ctypes.CDLL(None, use_errno=True)
    has = {
        "landlock": libc.syscall(_LANDLOCK_CREATE, None, 0, 1) >= 1,
        "seccomp": platform.machine() in _MACHINES and libc.prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0,
    }
    return tuple(name for name, there in has.items() if there)


def confine(files: Iterable[str], *, network: bool = False) -> tuple[str, ...]:
    """Leave this process ``files`` to read, and nothing else of the machine; return what held.

    Args:
        files: names of files.
        network: leave it connections to others too, and what it takes to make them.

    Returns:
        ``landlock`` and ``seccomp``, those that this machine has.
    """
    if sys.platform != "linux":
        return ()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    held = []
    readable = [*files, *_TO_CALL_OUT, *_own_code()] if network else files
    if _landlock(libc, readable, network=network):
        held.append("landlock")
    if _seccomp(libc, _CALLS_OUT if network else frozenset()):
        held.append("seccomp")
    return tuple(held)


def _own_code() -> list[str]:
    """Return the folders that Python's modules come from."""
    packages = Path(__file__).resolve().parents[2]
    own = [str(packages / name) for name in ("lakehouse", "governance", "trajectory")]
    return [sys.prefix, sys.base_prefix, *own]


def _landlock(libc: ctypes.CDLL, files: Iterable[str], *, network: bool) -> bool:
    abi = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        return False
    rights = struct.pack(
        "QQQ",
        _FILES_BY_ABI.get(abi, (1 << 16) - 1),
        _TCP if abi >= 4 and not network else 0,
        _SCOPES if abi >= 6 else 0,
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = libc.syscall(_LANDLOCK_CREATE, rights, size, 0)
    if rules < 0:
        return False
    try:
        for file in files:
            try:
                place = os.open(file, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:  # whoever needs it will say so
                continue
            folder = stat.S_ISDIR(os.fstat(place).st_mode)
            rule = struct.pack("=Qi", _READ_FILE | (_READ_FOLDER if folder else 0), place)
            libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, rule, 0)
            os.close(place)
        return bool(libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def _seccomp(libc: ctypes.CDLL, left: frozenset[str]) -> bool:
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    code = _filter(machine, left)
    program = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    done = libc.syscall(machine["seccomp"], _SECCOMP_FILTER_MODE, _ALL_THREADS, head)
    return bool(done == 0)


def _filter(machine: dict[str, int], left: frozenset[str]) -> bytes:
    """Return the filter's program: foreign calling conventions and what is denied end in EPERM."""
    denied = [number for name, number in machine.items() if name not in _NOT_DENIED | left]
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, machine["arch"]),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_LOAD, 0, 0, 0),
        (_GREATER, 0, 1, 0x3FFFFFFF),  # x86's x32 numbers
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        # The flags of clone3 lie in memory, where no filter sees them: the C library falls back.
        (_EQUAL, 0, 1, machine["clone3"]),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
    ]
    for number in denied:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    steps += [
        (_EQUAL, 0, 3, machine["clone"]),
        (_LOAD, 0, 0, 16),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
