"""How often the Events of a namespace are listed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rl_operator.kube.api_errors import ClusterError
from rl_operator.kube.metadata import Raw
from rl_operator.state.recent_warnings import SECONDS, RecentWarnings


class Events:
    """The Warnings of each namespace, of which a list has the first few; keeps what was listed."""

    def __init__(self) -> None:
        self.now = 100.0
        self.about: dict[str, list[str]] = {}
        self.listed: list[tuple[str, str]] = []
        self.most = 10
        self.on_list: Callable[[], None] = lambda: None
        self.recent = RecentWarnings(self, clock=lambda: self.now)

    def warnings(self, namespace: str, uid: str = "") -> tuple[list[Raw], bool]:
        self.listed.append((namespace, uid))
        self.on_list()
        uids = [each for each in self.about.get(namespace, []) if uid in ("", each)]
        events: list[Raw] = [
            {"regarding": {"uid": each}, "note": each, "metadata": {}} for each in uids
        ]
        return events[: self.most], len(events) <= self.most

    def notes(self, namespace: str, uid: str) -> list[str]:
        return [event["note"] for event in self.recent.about(namespace, uid)]


def test_a_namespace_is_listed_once_for_all_who_ask_within_seconds() -> None:
    events = Events()
    events.about = {"ns": ["a", "b", "a"], "other": ["c"]}
    assert events.notes("ns", "a") == ["a", "a"]
    events.now += SECONDS - 1
    assert (events.notes("ns", "b"), events.notes("ns", "c")) == (["b"], [])
    assert events.notes("other", "c") == ["c"]
    assert events.listed == [("ns", ""), ("other", "")]


def test_a_namespace_is_listed_again_when_its_time_is_over() -> None:
    events = Events()
    assert events.notes("ns", "a") == []
    events.about = {"ns": ["a"]}
    events.now += SECONDS
    assert events.notes("ns", "a") == ["a"]


def test_each_object_is_asked_for_where_a_list_has_not_all() -> None:
    events = Events()
    events.about, events.most = {"ns": [*"abcdefg", "a"]}, 2
    assert (events.notes("ns", "g"), events.notes("ns", "a")) == (["g"], ["a", "a"])
    assert events.listed == [("ns", ""), ("ns", "g"), ("ns", "a")]


def test_others_get_what_was_listed_before_while_a_thread_lists() -> None:
    events = Events()
    events.about = {"ns": ["a"]}
    assert events.notes("ns", "a") == ["a"]
    events.now += SECONDS
    events.about = {}
    asked: list[list[str]] = []
    events.on_list = lambda: asked.append(events.notes("ns", "a"))
    assert events.notes("ns", "a") == []
    assert asked == [["a"]]


def test_a_failed_list_is_raised() -> None:
    events = Events()

    def fail() -> None:
        raise ClusterError(doing="list", status=0, message="unreachable")

    events.on_list = fail
    for _ in range(2):
        with pytest.raises(ClusterError):
            events.notes("ns", "a")


def test_namespaces_for_which_nobody_asks_are_forgotten() -> None:
    events = Events()
    events.about = {f"ns-{number}": ["a"] for number in range(100)}
    for number in range(100):
        events.notes(f"ns-{number}", "a")
    events.now += 2 * SECONDS
    events.notes("another", "a")
    assert len(events.recent._listed) == 1
