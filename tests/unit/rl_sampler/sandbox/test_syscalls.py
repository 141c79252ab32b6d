"""The sandbox's filter on each machine, run by an interpreter of classic BPF.

What a real kernel does with the filter is tested on x86_64 alone (``test_sandbox_attacks``). For
64-bit ARM these tests show the filter's own answers, and no more.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct

import pytest

from rl_sampler.sandbox import syscalls
from rl_sampler.sandbox.syscalls import (
    ALLOW,
    ALLOWED,
    AUDIT_ARCHITECTURES,
    ERRNO,
    KILL,
    MACHINES,
    STEP,
    Numbers,
)

PID, OTHER = 4321, 1
LAST_NUMBER = 600
"""Above all calls of today's kernels."""
CHECKED = {
    syscalls.OPEN,
    syscalls.IOCTL,
    syscalls.SOCKETPAIR,
    syscalls.KILL_CALL,
    syscalls.FCNTL,
    syscalls.PRCTL,
    syscalls.TGKILL,
    syscalls.OPENAT,
    syscalls.PRLIMIT,
    syscalls.SETRLIMIT,
}


def judge(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """The filter's answer to a call; ``struct seccomp_data`` is the packet that it reads."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    audit = AUDIT_ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("IIQ6Q", number, audit, 0, *padded)
    steps = list(struct.iter_unpack(STEP, syscalls.program(PID, machine=machine)))
    at = accumulator = 0
    while True:
        operation, if_equal, if_not, operand = steps[at]
        at += 1
        if operation == syscalls.LOAD:
            (accumulator,) = struct.unpack_from("I", data, operand)
        elif operation == syscalls.AND:
            accumulator &= operand
        elif operation == syscalls.EQUAL:
            at += if_equal if accumulator == operand else if_not
        else:
            assert operation == syscalls.RETURN
            return int(operand)


def number_of(call: Numbers, machine: str) -> int | None:
    return call[MACHINES.index(machine)]


def test_each_machine_has_numbers_of_its_own_for_each_call() -> None:
    for column in range(len(MACHINES)):
        calls = [*ALLOWED.values(), *CHECKED]
        numbers = [call[column] for call in calls if call[column] is not None]
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("machine", MACHINES)
def test_only_listed_calls_are_allowed(machine: str) -> None:
    allowed = {number_of(call, machine) for call in ALLOWED.values()}
    checked = {number_of(call, machine) for call in CHECKED}
    for number in (*range(LAST_NUMBER), 0x40000000, 0x40000101, 0xFFFFFFFF):
        if number not in checked:
            expected = ALLOW if number in allowed else ERRNO | errno.EPERM
            assert judge(machine, number) == expected, number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("architecture", [0x40000003, 0x40000028, 0xC00000F3])
def test_calls_of_another_architecture_end_the_process(machine: str, architecture: int) -> None:
    assert judge(machine, 0, architecture=architecture) == KILL
    other = next(other for other in MACHINES if other != machine)
    assert judge(machine, 0, architecture=AUDIT_ARCHITECTURES[other]) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_opened_for_reading_only(machine: str) -> None:
    number = number_of(syscalls.OPENAT, machine)
    assert number is not None
    for flags in (0, os.O_CLOEXEC, os.O_PATH, os.O_NOFOLLOW):
        assert judge(machine, number, 3, 0, flags) == ALLOW
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE):
        assert judge(machine, number, 3, 0, flags) == ERRNO | errno.EROFS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "at"), [(syscalls.KILL_CALL, ()), (syscalls.TGKILL, (PID,))], ids=["kill", "tgkill"]
)
def test_signals_reach_the_process_itself_only(
    machine: str, call: Numbers, at: tuple[int, ...]
) -> None:
    number = number_of(call, machine)
    assert number is not None
    assert judge(machine, number, PID, *at, signal.SIGTERM) == ALLOW
    assert judge(machine, number, PID, *at, signal.SIGKILL) == ERRNO | errno.EPERM
    for target in (OTHER, 0, 0xFFFFFFFF):
        assert judge(machine, number, target, *at, signal.SIGTERM) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "allowed", "refused"),
    [
        (syscalls.PRLIMIT, (0, resource.RLIMIT_CPU, 0), (OTHER, resource.RLIMIT_CPU, 0)),
        (syscalls.PRLIMIT, (0, resource.RLIMIT_STACK, 1), (0, resource.RLIMIT_CPU, 1)),
        (syscalls.PRLIMIT, (0, resource.RLIMIT_STACK, 1), (0, resource.RLIMIT_CPU, 1 << 32)),
        (syscalls.SETRLIMIT, (resource.RLIMIT_STACK, 1), (resource.RLIMIT_CPU, 1)),
        (syscalls.PRCTL, (15,), (4,)),
        (syscalls.FCNTL, (1, 1030), (1, 8)),
        (syscalls.SOCKETPAIR, (1, 0o4000 | 1), (1, 2)),
        (syscalls.SOCKETPAIR, (1, 1), (2, 1)),
    ],
)
def test_arguments_decide_about_a_call(
    machine: str, call: Numbers, allowed: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    number = number_of(call, machine)
    assert number is not None
    assert judge(machine, number, *allowed) == ALLOW
    assert judge(machine, number, *refused) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_terminals_cannot_be_controlled(machine: str) -> None:
    number = number_of(syscalls.IOCTL, machine)
    assert number is not None
    assert judge(machine, number, 0, 0x541B) == ALLOW
    assert judge(machine, number, 0, 0x5412) == ERRNO | errno.ENOTTY
