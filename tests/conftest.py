import os
import signal

# Before torch is imported, here or in a process that a test starts: two test runs share the
# machine's cores, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["tests.servers", "tests.apiserver"]


def pytest_configure() -> None:
    # A run that is told to end takes its servers along, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
