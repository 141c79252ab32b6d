from __future__ import annotations

from rl_sampler.policy.backoff import Backoff


def test_backoff_of_a_failing_version_doubles() -> None:
    backoff, now, waits = Backoff(), 0.0, []
    for _ in range(9):
        backoff.failed(3, now=now)
        started = now
        while not backoff.due(3, now=now):
            now += 0.25
        waits.append(now - started)
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_backoff_spares_newer_versions_and_ends_with_success() -> None:
    backoff = Backoff()
    backoff.failed(3, now=0)
    backoff.failed(5, now=0)
    assert not backoff.due(3, now=0.1)
    assert backoff.due(4, now=0.1)
    backoff.succeeded(4)
    assert backoff.due(3, now=0.1)
    assert not backoff.due(5, now=0.1)
