"""Attacks that use up time, memory, descriptors or output."""

from __future__ import annotations

from tests.contract.rl_sampler.tools.attacks.attack import Attack, Ending, refused

RAISE_LIMITS = """
import resource
for limit in (0, 1, 4, 6, 7, 8, 9):
    try:
        resource.setrlimit(limit, (1 << 40, 1 << 40))
    except (OSError, ValueError):
        print("refused")
"""
ENDLESS: dict[Ending, dict[str, str]] = {
    "failed": {
        "one large object": "print(len(bytearray(1 << 40)))",
        "many objects": "kept = []\nwhile True:\n    kept.append(bytearray(1 << 24))",
        "mappings": "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 1 << 26))",
        "descriptors": "while True:\n    os.dup(1)",
        "pipes": "while True:\n    os.pipe()",
        "epolls": "import select\nk = [select.epoll() for _ in range(999)]",
        "the stack": "def f():\n    return f()\nf()",
        "the C stack": "sys.setrecursionlimit(10 ** 9)\n"
        "class A:\n    __getattr__ = lambda s, n: getattr(s, n)\nA().x",
        "the alarm clock": "import signal, time\nsignal.alarm(1)\ntime.sleep(99)",
    },
    "limit": {
        "output": "while True:\n    print('x' * 65536)",
        "errors": "while True:\n    sys.stderr.write('x' * 65536)",
        "the report": "while True:\n    os.write(3, b'x' * 65536)",
    },
    "processor": {
        "time": "while True:\n    pass",
        "time in C": "10 ** 10 ** 9",
        "a regular expression": "import re\nre.match('(a*)*b', 'a' * 99)",
        "time, ignoring the signal": "import signal\n"
        "for n in set(signal.Signals) - {9, 19}:\n    signal.signal(n, 1)\nwhile True:\n    pass",
    },
    "wall": {
        "wall time": "import time\ntime.sleep(1e6)",
        "a stop": "import signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "wall time at exit": "import atexit, time\natexit.register(time.sleep, 1e6)",
    },
}
EXHAUSTION = [
    Attack(f"exhaust: {name}", program, ending)
    for ending, programs in ENDLESS.items()
    for name, program in programs.items()
] + [
    *refused("exhaust", "lambda: __import__('fcntl').ioctl(0, 0x5413, b' ' * 8)"),
    Attack("exhaust: raise the limits", RAISE_LIMITS, "ended", "refused\n" * 7),
]
