"""Kernel limits that a worker adopts before it reads the first foreign byte.

``confine`` gives up memory beyond a limit, files, network, signals and new programs::

    POSIX     hard limits of memory, file size and descriptors; no core dump
    Linux     first victim of the OOM killer, death with the parent, no capabilities or privileges
    Landlock  reads code and time zones, writes its own directory; no TCP, no signals or ptrace
              beyond the worker
    seccomp   no sockets, programs, signals, namespaces, memory files or other kernel interfaces
              that a decoder does not need

``Confinement`` reports what was achieved.  Memory is limited by ``RLIMIT_DATA``, relative to the
size at birth; reserved pages do not count.  seccomp uses a denylist, for x86-64 and AArch64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RESERVED_BYTES = 2 << 30
"""Address space beyond the memory limit that may be reserved without being written."""

DESCRIPTORS_MAX = 256

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_CLONE_NEWNET, _CLONE_NEWUSER, _CLONE_THREAD = 0x40000000, 0x10000000, 0x00010000
_EPERM, _ENOSYS = 1, 38

# Landlock: number of file access bits since each ABI version
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_FS_BITS = {1: 13, 2: 14, 3: 15, 5: 16}
_FS_READ = 1 << 2 | 1 << 3
_FS_WRITE = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14
_NET_ALL, _SCOPE_ALL = 0b11, 0b11

_COMMON_CALLS = (424, 425, 426, 427, 434, 438)  # pidfd_*, io_uring_*: one number everywhere
_CALLS: dict[str, tuple[int, tuple[int, ...], int, int]] = {
    # machine: (audit number, calls refused, clone, tgkill)
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 49, 50, 53, 288),  # socket, connect, accept, bind, listen, -pair, accept4
            *(57, 58, 59, 322),  # fork, vfork, execve, execveat
            *(62, 129, 200, 297),  # kill, rt_sigqueueinfo, tkill, rt_tgsigqueueinfo
            *(101, 310, 311),  # ptrace, process_vm_readv, process_vm_writev
            *(319, 447, 29, 64, 68),  # memfd_create, memfd_secret, shmget, semget, msgget
            *(321, 298, 323, 248, 249, 250),  # bpf, perf_event_open, userfaultfd, keys
            *(165, 166, 155, 161, 272, 308),  # mount, umount, pivot_root, chroot, unshare, setns
            *(175, 313, 246, 303, 304, 135),  # modules, kexec, file handles, personality
        ),
        56,
        234,
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 199, 200, 201, 202, 203, 242),
            *(221, 281),
            *(129, 130, 138, 240),
            *(117, 270, 271),
            *(279, 447, 194, 190, 186),
            *(280, 241, 282, 217, 218, 219),
            *(40, 39, 41, 51, 97, 268),
            *(105, 273, 104, 264, 265, 92),
        ),
        220,
        131,
    ),
}
_CLONE3 = 435


@dataclass(frozen=True)
class Confinement:
    """What a worker has given up; ``landlock`` is the ABI version, 0 for none."""

    memory_bytes: int
    landlock: int
    seccomp: bool
    network: bool


def die_with_parent(parent: int) -> None:
    """Get SIGKILL when the parent ends; call it in the child, with the parent's pid."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def without_network() -> bool:
    """Enter an empty network namespace; False where that is not allowed."""
    if sys.platform != "linux":
        return False
    libc = _libc()
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def confine(
    memory_bytes: int, directory: str | None, file_bytes: int, *, offline: bool = False
) -> Confinement:
    """Give up everything but ``memory_bytes`` more memory and one writable directory, irrevocably.
    ``offline`` says that ``without_network`` has succeeded.
    """
    _limit(memory_bytes, file_bytes if directory else 0)
    landlock, seccomp = 0, False
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        _drop_capabilities()
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            landlock = _landlock(directory, _code())
            seccomp = _refuse_calls()
    return Confinement(memory_bytes, landlock, seccomp, offline or seccomp)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _limit(memory_bytes: int, file_bytes: int) -> None:
    if sys.platform == "linux":
        sizes = dict(
            line.split(":", 1)
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith(("VmData", "VmSize", "VmStk"))
        )
        kib = {name: int(text.split()[0]) << 10 for name, text in sizes.items()}
        data = kib["VmData"] + kib["VmStk"] + memory_bytes
        space = kib["VmSize"] + memory_bytes + RESERVED_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    else:
        data = memory_bytes + RESERVED_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = DESCRIPTORS_MAX if most == resource.RLIM_INFINITY else min(most, DESCRIPTORS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))


def _drop_capabilities() -> None:
    header = struct.pack("=II", 0x20080522, 0)
    _libc().capset(header, bytes(24))


def _code() -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield from {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    yield from (path for path in sys.path if path.rstrip("/").endswith("-packages"))
    yield from ("/usr/lib", "/usr/share/zoneinfo", "/lib", "/lib64", "/etc/localtime")
    yield str(Path(__file__).resolve().parent.parent)


def _landlock(directory: str | None, readable: Iterable[str]) -> int:
    libc = _libc()
    version = int(libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if version < 1:
        return 0
    bits = max(count for since, count in _FS_BITS.items() if since <= version)
    handled = (1 << bits) - 1
    attributes = struct.pack(
        "=QQQ", handled, _NET_ALL if version >= 4 else 0, _SCOPE_ALL if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            _allow(libc, ruleset, path, _FS_READ & handled)
        if directory is not None:
            _allow(libc, ruleset, directory, _FS_WRITE & handled)
        restricted = libc.syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return version if restricted == 0 else 0


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    with suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                access &= 1 << 1 | 1 << 2 | 1 << 14  # directory rights are invalid for a file
            libc.syscall(
                _LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", access, place), ctypes.c_uint32(0)
            )
        finally:
            os.close(place)


def _refuse_calls() -> bool:
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return False
    audit, refused, clone, tgkill = calls
    allow, refuse = 0x7FFF0000, 0x00050000 | _EPERM
    load, equal, least, some, done = 0x20, 0x15, 0x35, 0x45, 0x06
    number, machine, first = 0, 4, 16
    program: list[tuple[int, int, int, int]] = [
        (load, 0, 0, machine),
        (equal, 1, 0, audit),
        (done, 0, 0, refuse),
        (load, 0, 0, number),
        (least, 0, 1, 0x40000000),  # the x32 ABI
        (done, 0, 0, refuse),
        (equal, 0, 1, _CLONE3),  # libc falls back to clone, whose flags seccomp can inspect
        (done, 0, 0, 0x00050000 | _ENOSYS),
    ]
    for call in (*_COMMON_CALLS, *refused):
        program += [(equal, 0, 1, call), (done, 0, 0, refuse)]
    program += [
        (equal, 0, 4, clone),
        (load, 0, 0, first),
        (some, 0, 1, _CLONE_THREAD),
        (done, 0, 0, allow),
        (done, 0, 0, refuse),
        (equal, 0, 4, tgkill),  # abort() signals its own process
        (load, 0, 0, first),
        (equal, 0, 1, os.getpid()),
        (done, 0, 0, allow),
        (done, 0, 0, refuse),
        (done, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    return bool(_libc().prctl(_PR_SET_SECCOMP, 2, ctypes.byref(filter_), 0, 0) == 0)
