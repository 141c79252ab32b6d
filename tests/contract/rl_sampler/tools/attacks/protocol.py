"""Attacks on the server's protocol: its secrets, its descriptors, its report of passed tests."""

from __future__ import annotations

from tests.contract.rl_sampler.tools.attacks.attack import Attack, refused

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
    *refused("protocol", "os.read, 1, 9", "os.read, 2, 9", "os.read, 3, 9", "os.read, 4, 9"),
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
