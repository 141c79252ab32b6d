"""Attacks on the kernel: the network, rare system calls, calls of another architecture."""

from __future__ import annotations

from tests.contract.rl_sampler.tools.attacks.attack import Attack, refused

NETWORK = refused(
    "network",
    "lambda: __import__('socket').create_connection(('127.0.0.1', 30000))",
    "lambda: __import__('socket').create_connection(('169.254.169.254', 80))",
    "lambda: __import__('socket').getaddrinfo('kubernetes.default', 443)",
    "lambda: __import__('urllib.request').request.urlopen('http://127.0.0.1:30000/')",
    *(
        f"lambda: __import__('socket').socket({family}, {kind})"
        for family, kind in ((2, 1), (2, 2), (10, 1), (2, 3), (17, 3), (16, 3), (1, 1), (40, 1))
    ),
    *(f"lambda: __import__('socket').socketpair(1, {kind})" for kind in (2, 5)),
    "lambda: __import__('socket').socketpair()[0].sendmsg([b'x'])",
    "lambda: __import__('socket').socketpair()[0].setsockopt(1, 26, b'\\0' * 16)",  # attach filter
    "lambda: __import__('asyncio').run(__import__('asyncio').open_unix_connection(SOCKET))",
    "call, 49, 1, b'\\0' * 16, 16",  # bind
    "call, 42, 1, b'\\0' * 16, 16",  # connect
    "call, 50, 1, 1",  # listen
    "call, 43, 1, 0, 0",  # accept
    "call, 46, 1, 0, 0",  # sendmsg
    "call, 47, 1, 0, 0",  # recvmsg
)

KERNEL = [
    Attack(f"kernel: {name}", f"attempt(call, {number}, 0, 0, 0, 0, 0, 0)")
    for name, number in {
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "userfaultfd": 323,
        "memfd_create": 319,
        "memfd_secret": 447,
        "bpf": 321,
        "perf_event_open": 298,
        "keyctl": 250,
        "add_key": 248,
        "request_key": 249,
        "mq_open": 240,
        "msgget": 68,
        "shmget": 29,
        "semget": 64,
        "fanotify_init": 300,
        "inotify_init": 253,
        "timerfd_create": 283,
        "timer_create": 222,
        "signalfd4": 289,
        "seccomp": 317,
        "landlock_create_ruleset": 444,
        "modify_ldt": 154,
        "ioperm": 173,
        "iopl": 172,
        "kexec_load": 246,
        "init_module": 175,
        "finit_module": 313,
        "reboot": 169,
        "syslog": 103,
        "swapon": 167,
        "acct": 163,
        "sethostname": 170,
        "settimeofday": 164,
        "clock_settime": 227,
        "adjtimex": 159,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "openat2": 437,
        "splice": 275,
        "vmsplice": 278,
        "tee": 276,
        "sendfile": 40,
        "copy_file_range": 326,
        "mlockall": 151,
        "mbind": 237,
        "migrate_pages": 256,
        "move_pages": 279,
        "pkey_alloc": 330,
        "remap_file_pages": 216,
        "io_setup": 206,
        "io_submit": 209,
        "lookup_dcookie": 212,
        "quotactl": 179,
        "futex_waitv": 449,
        "cachestat": 451,
        "x32 openat": 0x40000101,
        "x32 execve": 0x40000208,
        "the last number": 0xFFFFFFFF,
    }.items()
] + refused(
    "kernel",
    "lambda: __import__('fcntl').ioctl(0, 0x5412, b'a')",  # TIOCSTI
    "lambda: __import__('fcntl').ioctl(1, 0x5452, b'\\1\\0\\0\\0')",  # FIOASYNC
    "lambda: __import__('fcntl').ioctl(1, 0x8901, b'\\1\\0\\0\\0')",  # FIOSETOWN
    "lambda: __import__('fcntl').fcntl(1, 1031, 1 << 20)",  # F_SETPIPE_SZ
    "lambda: __import__('fcntl').fcntl(1, 1024, 0)",  # F_SETLEASE
    "lambda: __import__('fcntl').fcntl(1, 1026, 1)",  # F_NOTIFY
    "lambda: __import__('fcntl').flock(1, 2)",
)
I386 = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b8{number:02x}000000cd80c3"))
entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print("before", flush=True)
print(entry())
"""
ARCHITECTURE = [
    Attack(f"i386: {name}", I386.format(number=number), "failed", "before\n")
    for name, number in (("fork", 2), ("open", 5), ("execve", 11), ("getpid", 20))
]
