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
import signal
import struct
from collections.abc import Sequence

MACHINE = "x86_64"
"""Call numbers differ between architectures; these are of this one."""
AUDIT_ARCH_X86_64 = 0xC000003E
KILL, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
STEP = "HBBI"
STEP_BYTES = struct.calcsize(STEP)
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16

ALLOWED = {
    "read": 0,
    "write": 1,
    "close": 3,
    "stat": 4,
    "fstat": 5,
    "lstat": 6,
    "poll": 7,
    "lseek": 8,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "pread64": 17,
    "readv": 19,
    "writev": 20,
    "access": 21,
    "pipe": 22,
    "select": 23,
    "sched_yield": 24,
    "mremap": 25,
    "mincore": 27,
    "madvise": 28,
    "dup": 32,
    "dup2": 33,
    "pause": 34,
    "nanosleep": 35,
    "getitimer": 36,
    "alarm": 37,
    "setitimer": 38,
    "getpid": 39,
    "sendto": 44,
    "recvfrom": 45,
    "shutdown": 48,
    "getsockname": 51,
    "getpeername": 52,
    "setsockopt": 54,
    "getsockopt": 55,
    "exit": 60,
    "uname": 63,
    "getcwd": 79,
    "chdir": 80,
    "readlink": 89,
    "umask": 95,
    "gettimeofday": 96,
    "getrlimit": 97,
    "getrusage": 98,
    "sysinfo": 99,
    "times": 100,
    "getuid": 102,
    "getgid": 104,
    "geteuid": 107,
    "getegid": 108,
    "getppid": 110,
    "getpgrp": 111,
    "getgroups": 115,
    "getresuid": 118,
    "getresgid": 120,
    "sigaltstack": 131,
    "arch_prctl": 158,
    "setrlimit": 160,
    "gettid": 186,
    "time": 201,
    "futex": 202,
    "sched_getaffinity": 204,
    "epoll_create": 213,
    "getdents64": 217,
    "set_tid_address": 218,
    "restart_syscall": 219,
    "fadvise64": 221,
    "clock_gettime": 228,
    "clock_getres": 229,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "epoll_wait": 232,
    "epoll_ctl": 233,
    "newfstatat": 262,
    "readlinkat": 267,
    "faccessat": 269,
    "pselect6": 270,
    "ppoll": 271,
    "set_robust_list": 273,
    "epoll_pwait": 281,
    "eventfd": 284,
    "eventfd2": 290,
    "epoll_create1": 291,
    "dup3": 292,
    "pipe2": 293,
    "preadv": 295,
    "getcpu": 309,
    "getrandom": 318,
    "membarrier": 324,
    "statx": 332,
    "rseq": 334,
    "faccessat2": 439,
}
OPEN, IOCTL, SOCKETPAIR, KILL_CALL, FCNTL, PRCTL, TGKILL, OPENAT, PRLIMIT = (
    2,
    16,
    53,
    62,
    72,
    157,
    234,
    257,
    302,
)
WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ; F_SETOWN signals."""
PIPE_COMMANDS = (0x5421, 0x5450, 0x5451, 0x541B)
"""FIONBIO, FIONCLEX, FIOCLEX, FIONREAD."""
PROCESS_COMMANDS = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA."""
UNIX, STREAM, TYPE_MASK = 1, 1, 0xF

Step = tuple[int, int, int, int]
"""Operation, steps to skip where it holds, steps to skip where it does not, operand."""


def program(pid: int) -> bytes:
    """The filter for the process ``pid``, as an array of ``struct sock_filter``."""
    steps: list[Step] = [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for number in ALLOWED.values():
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    steps += [
        *_when(OPEN, _reads(1)),
        *_when(OPENAT, _reads(2)),
        *_when(IOCTL, _one_of(1, PIPE_COMMANDS, otherwise=errno.ENOTTY)),
        *_when(KILL_CALL, _signals(pid, signal_at=1)),
        *_when(TGKILL, _signals(pid, signal_at=2)),
        *_when(PRLIMIT, _one_of(0, [0])),
        *_when(FCNTL, _one_of(1, DESCRIPTOR_COMMANDS)),
        *_when(PRCTL, _one_of(0, PROCESS_COMMANDS)),
        *_when(SOCKETPAIR, _stream_pair()),
        _refused(errno.EPERM),
    ]
    return b"".join(struct.pack(STEP, *step) for step in steps)


def _when(number: int, steps: Sequence[Step]) -> list[Step]:
    """Steps that apply to a call; each path through them must return."""
    return [(EQUAL, 0, len(steps), number), *steps]


def _argument(index: int) -> Step:
    """Load the lower half of an argument; all checked arguments are ints."""
    return (LOAD, 0, 0, ARGUMENTS_AT + 8 * index)


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
