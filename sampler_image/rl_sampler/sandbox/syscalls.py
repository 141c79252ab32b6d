"""The system calls that a program may make: a seccomp filter for a single-threaded process.

All calls that are not listed fail with EPERM: other processes (clone, fork, execve, signals,
ptrace), the network (socket, connect), kernel objects that outlive the process or are costly
(io_uring, memfd, keys, message queues), and calls of future kernels. Files can be opened for
reading only.

Filters are classic BPF: Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
from collections.abc import Sequence

AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""By machine. Call numbers differ between architectures; a call of another one, such as of i386 or
32-bit ARM, ends the process."""
MACHINES = tuple(AUDIT_ARCHITECTURES)
"""Machines whose calls are listed here."""
KILL, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
STEP = "HBBI"
STEP_BYTES = struct.calcsize(STEP)
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16

Numbers = tuple[int, int | None]
"""Of a call on each of MACHINES; None: the machine has no such call."""
ALLOWED: dict[str, Numbers] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "mincore": (27, 232),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "shutdown": (48, 210),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "getsockopt": (55, 209),
    "exit": (60, 93),
    "uname": (63, 160),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "readlink": (89, None),
    "umask": (95, 166),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "getgroups": (115, 158),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "epoll_create": (213, None),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "restart_syscall": (219, 128),
    "fadvise64": (221, 223),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "epoll_pwait": (281, 22),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "preadv": (295, 69),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
}
OPEN: Numbers = (2, None)
IOCTL: Numbers = (16, 29)
SOCKETPAIR: Numbers = (53, 199)
KILL_CALL: Numbers = (62, 129)
FCNTL: Numbers = (72, 25)
PRCTL: Numbers = (157, 167)
SETRLIMIT: Numbers = (160, 164)
TGKILL: Numbers = (234, 131)
OPENAT: Numbers = (257, 56)
PRLIMIT: Numbers = (302, 261)
WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | 0o20000000
"""The last is O_TMPFILE without O_DIRECTORY, whose values differ between machines."""
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ; F_SETOWN signals."""
PIPE_COMMANDS = (0x5421, 0x5450, 0x5451, 0x541B)
"""FIONBIO, FIONCLEX, FIOCLEX, FIONREAD."""
PROCESS_COMMANDS = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA."""
UNIX, STREAM, TYPE_MASK = 1, 1, 0xF

Step = tuple[int, int, int, int]
"""Operation, steps to skip where it holds, steps to skip where it does not, operand."""


def program(pid: int, *, machine: str) -> bytes:
    """The filter for the process ``pid``, as an array of ``struct sock_filter``.

    Args:
        pid: may be the target of signals.
        machine: one of MACHINES.
    """
    column = MACHINES.index(machine)
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for numbers in ALLOWED.values():
        steps += _when(numbers[column], [(RETURN, 0, 0, ALLOW)])
    checked: list[tuple[Numbers, list[Step]]] = [
        (OPEN, _reads(1)),
        (OPENAT, _reads(2)),
        (IOCTL, _one_of(1, PIPE_COMMANDS, otherwise=errno.ENOTTY)),
        (KILL_CALL, _signals(pid, signal_at=1)),
        (TGKILL, _signals(pid, signal_at=2)),
        (PRLIMIT, _own_limits()),
        (SETRLIMIT, _one_of(0, [resource.RLIMIT_STACK])),
        (FCNTL, _one_of(1, DESCRIPTOR_COMMANDS)),
        (PRCTL, _one_of(0, PROCESS_COMMANDS)),
        (SOCKETPAIR, _stream_pair()),
    ]
    for numbers, judged in checked:
        steps += _when(numbers[column], judged)
    steps.append(_refused(errno.EPERM))
    return b"".join(struct.pack(STEP, *step) for step in steps)


def _when(number: int | None, steps: Sequence[Step]) -> list[Step]:
    """Steps that apply to a call; each path through them must return."""
    return [] if number is None else [(EQUAL, 0, len(steps), number), *steps]


def _argument(index: int, *, upper: bool = False) -> Step:
    """Load the lower half of an argument, which is all of an int, or the upper half."""
    return (LOAD, 0, 0, ARGUMENTS_AT + 8 * index + 4 * upper)


def _refused(why: int) -> Step:
    return (RETURN, 0, 0, ERRNO | why)


def _reads(index: int) -> list[Step]:
    return [
        _argument(index),
        (AND, 0, 0, WRITING),
        (EQUAL, 0, 1, os.O_RDONLY),
        (RETURN, 0, 0, ALLOW),
        _refused(errno.EROFS),
    ]


def _signals(pid: int, *, signal_at: int) -> list[Step]:
    """Signals to itself only, and not SIGKILL: that would look like a kill from outside."""
    return [
        _argument(0),
        (EQUAL, 0, 3, pid),
        _argument(signal_at),
        (EQUAL, 1, 0, signal.SIGKILL),
        (RETURN, 0, 0, ALLOW),
        _refused(errno.EPERM),
    ]


def _own_limits() -> list[Step]:
    """Reads all limits of the process itself, and sets that of its stack alone.

    A lower limit of processor time would end it with SIGKILL, as a kill from outside does.
    """
    pid, kind, new_limit = 0, 1, 2
    return [
        _argument(pid),
        (EQUAL, 0, 7, 0),
        _argument(kind),
        (EQUAL, 4, 0, resource.RLIMIT_STACK),
        _argument(new_limit),
        (EQUAL, 0, 3, 0),
        _argument(new_limit, upper=True),
        (EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        _refused(errno.EPERM),
    ]


def _one_of(index: int, values: Sequence[int], *, otherwise: int = errno.EPERM) -> list[Step]:
    steps = [_argument(index)]
    for value in values:
        steps += [(EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW)]
    return [*steps, _refused(otherwise)]


def _stream_pair() -> list[Step]:
    return [
        _argument(0),
        (EQUAL, 0, 3, UNIX),
        _argument(1),
        (AND, 0, 0, TYPE_MASK),
        (EQUAL, 1, 0, STREAM),
        _refused(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
