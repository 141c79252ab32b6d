"""Programs that attack the sandbox, what each must come to, and the sandbox's surroundings.

Names in programs: ``attempt(f, *args)`` prints ``refused`` where f raises OSError, else what it
returned; ``call(number, *args)`` is a system call of x86_64. ``CANARY`` is a file of the sandbox's
own user, ``SERVER`` and ``VICTIM`` are processes of that user, ``SOCKET`` is the server's socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PRELUDE = """
import ctypes, os, sys
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    padded = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = _libc.syscall(ctypes.c_long(number), *padded)
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def attempt(what, *arguments, **named):
    try:
        result = what(*arguments, **named)
    except (OSError, RuntimeError, ImportError) as error:
        print("refused" if not isinstance(error, RuntimeError) or "thread" in str(error) else error)
    else:
        print("done", repr(result)[:200])
def read(path):
    with open(path, "rb") as file:
        return file.read(4096)
"""
Ending = Literal["refused", "ended", "failed", "processor", "wall", "limit"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A program and how it must end."""

    name: str
    code: str
    ending: Ending = "refused"
    """``refused``: each attempt prints ``refused``, and the program ends by itself. ``limit``: its
    time ends, of the processor or, where the handler is slow to read, of the clock."""
    output: str | None = None
    """Exact output; None: any, but never a secret."""
    tests: str | None = None


def _refused(prefix: str, *attempts: str) -> list[Attack]:
    """An attack for each attempt; those of a kind share a prefix in their names."""
    return [Attack(f"{prefix}: {each}", f"attempt({each})") for each in attempts]


READS = _refused(
    "read",
    "read, CANARY",
    "read, '/usr/..' + CANARY",
    "read, '/proc/self/root' + CANARY",
    "read, '/etc/../' + CANARY.lstrip('/')",
    "lambda: os.open(CANARY, os.O_RDONLY | os.O_NOFOLLOW)",
    "lambda: os.open(CANARY.lstrip('/'), os.O_RDONLY, dir_fd=os.open('/', os.O_PATH))",
    "lambda: read(f'/dev/fd/{os.open(CANARY, os.O_PATH)}')",
    "lambda: os.read(os.open(CANARY, os.O_PATH), 9)",
    "lambda: __import__('mmap').mmap(os.open(CANARY, 0), 0, prot=1)",
    "ctypes.CDLL, CANARY",
    "lambda: sys.path.insert(0, os.path.dirname(CANARY)) or __import__('canary')",
    "lambda: __import__('runpy').run_path(CANARY)",
    "lambda: list(os.scandir(os.path.dirname(CANARY)))",
    "os.listdir, '/root'",
    "os.listdir, '/home'",
    "os.listdir, '/tmp'",
    "os.listdir, '/run'",
    "os.listdir, '/var'",
    "os.listdir, '/sys'",
    "os.listdir, '/dev'",
    "os.listdir, '/dev/shm'",
    "os.listdir, '/proc'",
    "os.listdir, '/'",
    "os.listdir, '/proc/self/fd'",
    "os.listdir, '/proc/self/task'",
    "read, '/var/run/secrets/kubernetes.io/serviceaccount/token'",
    "read, '/etc/rl/stores/s3SecretKey'",
    "read, '/etc/rl/spec/spec.json'",
    "read, '/root/.aws/credentials'",
    "read, '/proc/self/environ'",
    "read, '/proc/self/mem'",
    "read, '/proc/self/maps'",
    "read, '/proc/self/status'",
    "read, '/proc/thread-self/environ'",
    "read, '/proc/self/cmdline'",
    "read, '/proc/1/environ'",
    "read, '/proc/1/cmdline'",
    "read, '/proc/net/tcp'",
    "read, '/proc/sys/kernel/hostname'",
    "read, '/proc/mounts'",
    "read, '/proc/kcore'",
    "read, '/proc/kallsyms'",
    "read, '/proc/cpuinfo'",
    "read, '/dev/mem'",
    "read, '/dev/kmsg'",
    "read, '/dev/tty'",
    "read, '/dev/ptmx'",
    "read, '/sys/kernel/mm/transparent_hugepage/enabled'",
)
NEIGHBOURS = [
    attack
    for name in ("SERVER", "VICTIM", "os.getppid()")
    for attack in _refused(
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
] + _refused(
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
WRITES = _refused(
    "write",
    "open, CANARY, 'w'",
    "open, CANARY, 'a'",
    "open, CANARY, 'r+'",
    "open, 'here', 'w'",
    "open, '/dev/shm/left', 'x'",
    "open, '/dev/null', 'w'",
    "open, '/proc/self/oom_score_adj', 'w'",
    "open, '/proc/self/comm', 'w'",
    "lambda: os.open(os.path.dirname(CANARY), os.O_RDWR | os.O_TMPFILE)",
    "lambda: __import__('tempfile').TemporaryFile()",
    "lambda: __import__('multiprocessing.shared_memory').shared_memory.SharedMemory('x', True, 9)",
    "lambda: __import__('sqlite3').connect(CANARY + '.db').execute('create table t (a)')"
    " if False else open(CANARY + '.db', 'w')",
    "os.truncate, CANARY, 0",
    "os.mkdir, CANARY + '.d'",
    "os.mkfifo, CANARY + '.p'",
    "os.mknod, CANARY + '.n'",
    "os.symlink, '/etc/shadow', CANARY + '.l'",
    "os.link, CANARY, CANARY + '.h'",
    "os.rename, CANARY, CANARY + '.r'",
    "os.unlink, CANARY",
    "os.rmdir, os.path.dirname(CANARY)",
    "os.chmod, CANARY, 0o777",
    "os.chown, CANARY, 1, 1",
    "os.utime, CANARY",
    "os.setxattr, CANARY, 'user.a', b'b'",
    "os.unlink, SOCKET",
    "os.chroot, '/'",
)
PROCESSES = _refused(
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
OPTIONS = _refused(
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
NETWORK = _refused(
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
] + _refused(
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
EXHAUSTION = [
    Attack("exhaust: one large object", "print(len(bytearray(1 << 40)))", "failed"),
    Attack(
        "exhaust: many objects",
        "kept = []\nwhile True:\n    kept.append(bytearray(1 << 24))",
        "failed",
    ),
    Attack(
        "exhaust: mappings",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 1 << 26))",
        "failed",
    ),
    Attack("exhaust: descriptors", "while True:\n    os.dup(1)", "failed"),
    Attack("exhaust: pipes", "while True:\n    os.pipe()", "failed"),
    Attack("exhaust: epolls", "import select\nk = [select.epoll() for _ in range(999)]", "failed"),
    Attack("exhaust: the stack", "def f():\n    return f()\nf()", "failed"),
    Attack(
        "exhaust: the C stack",
        "sys.setrecursionlimit(10 ** 9)\nclass A:\n    __getattr__ = lambda s, n: getattr(s, n)\n"
        "A().x",
        "failed",
    ),
    Attack("exhaust: output", "while True:\n    print('x' * 65536)", "limit"),
    Attack("exhaust: errors", "while True:\n    sys.stderr.write('x' * 65536)", "limit"),
    Attack("exhaust: the report", "while True:\n    os.write(3, b'x' * 65536)", "limit"),
    Attack("exhaust: time", "while True:\n    pass", "processor"),
    Attack("exhaust: time in C", "10 ** 10 ** 9", "processor"),
    Attack("exhaust: a regular expression", "import re\nre.match('(a*)*b', 'a' * 99)", "processor"),
    Attack(
        "exhaust: time, ignoring the signal",
        "import signal\nfor n in set(signal.Signals) - {9, 19}:\n    signal.signal(n, 1)\n"
        "while True:\n    pass",
        "processor",
    ),
    Attack("exhaust: wall time", "import time\ntime.sleep(1e6)", "wall"),
    Attack("exhaust: a stop", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", "wall"),
    Attack(
        "exhaust: wall time at exit",
        "import atexit, time\natexit.register(time.sleep, 1e6)",
        "wall",
    ),
    *_refused(
        "exhaust",
        "lambda: __import__('resource').setrlimit(6, (9, 9)) if False else os.fork()",
        "lambda: __import__('fcntl').ioctl(0, 0x5413, b' ' * 8)",
    ),
    Attack(
        "exhaust: raise the limits",
        "import resource\n"
        "for limit in (0, 1, 4, 6, 7, 8, 9):\n"
        "    try:\n        resource.setrlimit(limit, (1 << 40, 1 << 40))\n"
        "    except (OSError, ValueError):\n        print('refused')",
        "ended",
        "refused\n" * 7,
    ),
    Attack(
        "exhaust: the alarm clock", "import signal, time\nsignal.alarm(1)\ntime.sleep(99)", "failed"
    ),
]
SEARCH_STACK = """
block = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc, "environ")
start = ctypes.cast(block[0], ctypes.c_void_p).value & ~4095
try:
    print(ctypes.string_at(start, 4096))
except OSError:
    print("refused")
"""
SEARCH_OBJECTS = """
import gc
seen = [repr(found)[:2000] for found in gc.get_objects() if isinstance(found, (dict, list, tuple))]
print(len(seen) > 100, any("-".join(("nobody", "else", "may")) in each for each in seen))
"""
DESCRIPTORS = """
found = []
for number in range(1024):
    try:
        os.fstat(number)
    except OSError:
        continue
    found.append(number)
print(found)
"""
FORGED = '{"ending": "ended", "output": "", "errors": "", "passed": true}'
PROTOCOL = [
    Attack("protocol: environment", "print(sorted(os.environ), sys.argv)", "ended",
           "['LANG', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'] ['program']\n"),
    Attack("protocol: the stack's environment", SEARCH_STACK, "ended"),
    Attack("protocol: objects of the server", SEARCH_OBJECTS, "ended", "True False\n"),
    Attack("protocol: descriptors of the server", DESCRIPTORS, "ended", "[0, 1, 2, 3]\n"),
    Attack("protocol: standard input again", "print(read('/dev/stdin'))", "ended", "b''\n"),
    Attack("protocol: its own output", "print(read('/dev/fd/1'))", "wall", ""),
    Attack("protocol: standard input", "print(os.read(0, 9), sys.stdin.read())", "ended", "b'' \n"),
    *_refused("protocol", "os.read, 1, 9", "os.read, 2, 9", "os.read, 3, 9", "os.read, 4, 9"),
    Attack("protocol: a forged answer", f"print('{FORGED}')", "failed", FORGED + "\n", "assert 0"),
    Attack("protocol: leave before the tests", "os._exit(0)", "ended", "", "assert 0"),
    Attack("protocol: exit before the tests", "sys.exit(0)", "ended", "", "assert 0"),
    Attack("protocol: exit in the tests", "exits = sys.exit", "ended", "", "exits(0)"),
    Attack("protocol: report twice", "os.write(3, b'confined ')", "ended", "", "assert 1"),
    Attack("protocol: report a guess", "os.write(3, b'0' * 32)\nos._exit(0)", "ended", "", "0"),
    Attack("protocol: close the report", "os.close(3)", "failed", "", "assert 1"),
    Attack("protocol: close everything", "os.closerange(0, 9)", "failed", "", "assert 1"),
    Attack("protocol: an exit status of 256", "sys.exit(256)", "ended", ""),
    Attack("protocol: an exit handler that fails", "import atexit\natexit.register(exit, 0)",
           "failed", "", "assert 0"),
    Attack("protocol: a hook that leaves", "sys.excepthook = lambda *_: os._exit(0)", "ended", "",
           "assert 0"),
    Attack("protocol: no output object", "sys.stdout = sys.stderr = None", "ended", ""),
]  # fmt: skip
ATTACKS = (
    *READS,
    *NEIGHBOURS,
    *WRITES,
    *PROCESSES,
    *OPTIONS,
    *NETWORK,
    *KERNEL,
    *ARCHITECTURE,
    *EXHAUSTION,
    *PROTOCOL,
)
