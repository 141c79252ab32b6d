"""Attacks on processes: neighbours', and new ones."""

from __future__ import annotations

from tests.contract.rl_sampler.tools.attacks.attack import refused

NEIGHBOURS = [
    attack
    for name in ("SERVER", "VICTIM", "os.getppid()")
    for attack in refused(
        "neighbour",
        *(
            f"read, f'/proc/{{{name}}}/{file}'"
            for file in ("environ", "mem", "maps", "fd/0", "fd/1", "fd/3", "cwd/etc/passwd")
        ),
        f"os.readlink, f'/proc/{{{name}}}/exe'",
        f"os.kill, {name}, 0",
        f"os.kill, {name}, 9",
        f"call, 101, 16, {name}, 0, 0",  # ptrace attach
        f"call, 310, {name}, 0, 0, 0, 0, 0",  # process_vm_readv
        f"call, 434, {name}, 0",  # pidfd_open
        f"__import__('resource').prlimit, {name}, 7",
    )
] + refused(
    "neighbour",
    "os.kill, -1, 15",
    "os.kill, 0, 15",
    "os.killpg, os.getpgrp(), 9",
    "call, 200, SERVER, 9",  # tkill
    "call, 234, SERVER, SERVER, 9",  # tgkill
    "call, 129, SERVER, 9, 0",  # rt_sigqueueinfo
    "call, 297, SERVER, SERVER, 9, 0",  # rt_tgsigqueueinfo
    "call, 311, SERVER, 0, 0, 0, 0, 0",  # process_vm_writev
    "call, 312, SERVER, VICTIM, 0, 0, 0",  # kcmp
    "call, 438, 3, 0, 0",  # pidfd_getfd
    "call, 440, 3, 0, 0, 4, 0",  # process_madvise
    "call, 101, 0, 0, 0, 0",  # ptrace traceme
    "os.kill, os.getpid(), 9",
    "lambda: __import__('fcntl').fcntl(1, 8, SERVER)",  # F_SETOWN
    "lambda: __import__('fcntl').fcntl(1, 15, b'\\0' * 8)",  # F_SETOWN_EX
    "lambda: __import__('fcntl').fcntl(1, 10, 9)",  # F_SETSIG
)

PROCESSES = refused(
    "process",
    "os.fork",
    "os.forkpty",
    "call, 58",  # vfork
    "call, 56, 0x10000000, 0, 0, 0, 0",  # clone in a new user namespace
    "call, 56, 0x100, 0, 0, 0, 0",  # clone that shares memory
    "call, 435, b'\\0' * 88, 88",  # clone3
    "lambda: __import__('subprocess').run(['true'])",
    "lambda: __import__('subprocess').run('true', shell=True)",
    "lambda: os.posix_spawn('/bin/true', ['true'], {})",
    "os.execv, sys.executable, [sys.executable, '-c', 'print(1)']",
    "call, 322, -100, b'/bin/true', 0, 0, 0",  # execveat
    "lambda: __import__('multiprocessing').Process(target=print).start()",
    "lambda: __import__('threading').Thread(target=print).start()",
    "lambda: __import__('_thread').start_new_thread(print, ())",
    "lambda: __import__('concurrent.futures').futures.ThreadPoolExecutor().submit(print)",
    "os.setsid",
    "os.setpgid, 0, 0",
    "os.nice, -1",
    "os.setpriority, 0, 0, 19",
    "os.sched_setaffinity, 0, {0}",
    "lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "os.setuid, 0",
    "os.setgid, 0",
    "os.setgroups, [0]",
    "os.setresuid, 0, 0, 0",
    "call, 272, 0x10000000",  # unshare a user namespace
    "call, 272, 0x20000",  # unshare a mount namespace
    "call, 308, 3, 0",  # setns
    "call, 165, b'none', b'/tmp', b'tmpfs', 0, 0",  # mount
    "call, 155, b'/', b'/'",  # pivot_root
    "call, 428, -100, b'/', 1",  # open_tree
    "call, 430, b'tmpfs', 0",  # fsopen
    "call, 126, b'\\0' * 8, b'\\0' * 24",  # capset
    "call, 135, 0x40000",  # personality without address randomization
)
OPTIONS = refused(
    "prctl",
    *(
        f"lambda: call(157, {option}, {value}, 0, 0, 0)"
        for option, value in (
            (4, 1),  # PR_SET_DUMPABLE: readable by neighbours
            (1, 0),  # PR_SET_PDEATHSIG: outlive the handler
            (8, 1),  # PR_SET_KEEPCAPS
            (22, 0),  # PR_SET_SECCOMP
            (24, 0),  # PR_CAPBSET_DROP
            (35, 1),  # PR_SET_MM
            (36, 1),  # PR_SET_CHILD_SUBREAPER
            (59, 0),  # PR_SET_SYSCALL_USER_DISPATCH
            (0x59616D61, 1),  # PR_SET_PTRACER
        )
    ),
)
