import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import DEFAULT, EXPLORED_DEFAULT
from tests.garbage import collect_rarely

# Before torch is imported, here or in a process that a test starts: two test runs share the
# machine's cores, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["tests.servers", "tests.kube.apiserver"]

# A busy machine is no failure. The tiers try the same examples each time, so that a change is not
# blamed for what was there before; `make soak` looks for new ones, and for more of them.
settings.register_profile(
    "explore",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=EXPLORED_DEFAULT,
)
settings.register_profile(
    "tiers", parent=settings.get_profile("explore"), derandomize=True, max_examples=DEFAULT
)
settings.load_profile("tiers")


def pytest_configure() -> None:
    # A run that is told to end takes its servers along, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # At its end pytest runs ten full collections, to see what tests left open.
    collect_rarely()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of the soak out, unless they are asked for by a marker or by their own names."""
    if config.option.markexpr or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("soak")]
