"""Several runs of adapters have a pool at once; whoever needs it alone waits, and gets it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiHookError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.conditions import ConditionUpdate
from rl_operator.kube.kinds import Kind
from rl_operator.pools import engine_sharing
from rl_operator.state.snapshot import Job
from tests.examples import examples
from tests.unit.rl_operator.builders import a_job_object, a_meta
from tests.unit.rl_operator.model_turns import POOL, Turns
from tests.unit.rl_operator.pools.test_pool_turns import ENDED, EVENTS, Event

JOBS, LORA = "abcd", "abc"
"""The last one trains all weights."""


def of_last(act: Callable[[Turns, str], object]) -> Event:
    return lambda turns: act(turns, turns.holders[-1]) if turns.holders else None


TOGETHER: dict[str, Event] = {
    **EVENTS,
    "d comes": partial(Turns.make, name="d"),
    "d says": lambda turns: turns.say("d"),
    "d resumes": partial(Turns.suspend, name="d", wanted=False),
    "the last to join ends": of_last(lambda turns, name: turns.say(name, ENDED)),
    "the last to join is suspended": of_last(lambda turns, name: turns.suspend(name, wanted=True)),
    "the last to join is deleted": of_last(lambda turns, name: turns.delete(name)),
}


def some() -> Turns:
    return Turns(tuple(JOBS), lora=LORA, max_runs=2)


def check(turns: Turns, event: str) -> None:
    """Nobody stands beside a run that trains all weights, and no pod has more than two runs."""
    of_pods = [turns.jobs_of(pod) for pod in turns.pods()]
    jobs = set().union(*of_pods)
    assert all(len(of_pod) <= 2 for of_pod in of_pods), f"after {event}: {of_pods}"
    assert jobs <= set(LORA) or jobs == {"d"}, f"after {event}: pods of {jobs}"
    assert len(turns.holders) <= 2, event
    assert "d" not in turns.holders or turns.holders == ("d",), event


def serve_all(turns: Turns) -> None:
    """Every job that asks has the pool in the end, and none before one that asked earlier."""
    for _ in range(2):
        for name in turns.jobs:
            turns.suspend(name, wanted=False)
            turns.say(name)
        turns.settle()
    waiting = [entry["job"] for entry in turns.pool["status"].get("waiting", [])]
    began = len(turns.served)
    for _ in [*turns.holders, *waiting]:
        assert turns.holders, "nobody has the pool although somebody waits"
        assert [turns.jobs_of(pod) for pod in turns.pods()] == 2 * [set(turns.holders)]
        turns.say(turns.holder, ENDED)
        turns.settle()
        check(turns, "an end")
    assert turns.served[began:] == waiting
    assert not turns.holders
    assert not turns.pods()
    assert names.IN_USE_FINALIZER not in turns.pool["metadata"].get("finalizers", [])


TWO_HAVE_IT = ["a comes", "b comes", "a says", "b says", "settle"]
ACTED = ["the controller sees", "the controller acts"]


@example([*TWO_HAVE_IT, "d comes", "d says", "c comes", "c says", "settle"])
@example([*TWO_HAVE_IT, "the holder ends", "look", "c comes", "c says", "look", *ACTED])
@example([*TWO_HAVE_IT, "pause", "the last to join ends", "go on after the pool was read", *ACTED])
@example([*TWO_HAVE_IT, "the holder is deleted", "the last to join is deleted", "look", *ACTED])
@settings(deadline=None, max_examples=examples(75))
@given(st.lists(st.sampled_from(sorted(TOGETHER)), max_size=40))
def test_only_compatible_runs_share_the_pool_and_all_get_it(history: list[str]) -> None:
    turns = some()
    for event in history:
        TOGETHER[event](turns)
        turns.note()
        check(turns, event)
    serve_all(turns)
    before = turns.api.writes
    turns.look()
    assert turns.api.writes == before, "a second look writes"


def ask(turns: Turns, *wanted: str) -> None:
    for name in wanted:
        turns.make(name)
        turns.say(name)
    turns.settle()


def test_compatible_waiting_runs_get_the_pool_together() -> None:
    turns = some()
    ask(turns, "a", "b")
    assert turns.holders == ("a", "b")
    assert turns.pool["status"]["assignmentEpoch"] == 1, "one change, so that pods start once"


def test_joining_run_rolls_the_pods_and_keeps_the_holders() -> None:
    turns = some()
    ask(turns, "a")
    turns.make("b")
    turns.say("b")
    declared = []
    for _ in range(10):
        turns.look()
        turns.note()
        declared.append(turns.api.objects[(kinds.DEPLOYMENT.name, POOL)]["spec"]["replicas"])
    assert set(declared) == {2}, "never at 0: the Deployment replaces them as it is told to"
    turns.settle()
    assert turns.served == ["a", "b"]
    turns.say("a", ENDED)
    turns.settle()
    assert turns.pool["status"]["assignment"]["job"] == "b"
    assert turns.pool["status"]["beside"] == []
    serve_all(turns)


def test_queue_order_holds_for_a_run_that_cannot_share() -> None:
    turns = some()
    ask(turns, "a", "d", "b")
    assert turns.holders == ("a",), "b would go with a, and d would wait for ever"
    waiting = turns.pool["status"]["waiting"]
    assert [entry["job"] for entry in waiting] == ["d", "b"]
    assert waiting[0]["why"] == "without spec.training.lora a run has the engines for itself"
    turns.say("a", ENDED)
    turns.settle()
    assert turns.holders == ("d",)
    assert "RLJob d has no spec.training.lora" in turns.pool["status"]["waiting"][0]["why"]
    serve_all(turns)
    assert turns.served == ["a", "d", "b"]


def edit(turns: Turns, name: str, **training: object) -> None:
    """Change a job's section ``training``; None removes a field."""
    edited = turns.api.objects[(kinds.RLJOB.name, name)]
    merged = edited["spec"]["training"] | training
    edited["spec"]["training"] = {key: value for key, value in merged.items() if value is not None}
    turns.api.touch(edited, spec=True)
    turns.settle()


def begin(turns: Turns, name: str) -> None:
    """A job's first attempt begins."""
    begun = turns.api.objects[(kinds.RLJOB.name, name)]
    begun["status"]["attempt"] = 1
    turns.api.touch(begun)


@pytest.mark.parametrize(("edited", "begun"), [("a", "b"), ("b", "a")])
def test_edit_of_a_job_that_has_not_begun_takes_nothing_from_one_that_has(
    edited: str, begun: str
) -> None:
    turns = some()
    ask(turns, "a", "b")
    begin(turns, begun)
    edit(turns, edited, lora=None)
    assert turns.holders == (begun,)
    turns.say(edited)
    turns.settle()
    assert "without spec.training.lora" in turns.pool["status"]["waiting"][0]["why"]


@pytest.mark.parametrize("unread", ["a", "b"])
def test_unreadable_spec_takes_the_pool_from_nobody(unread: str) -> None:
    turns = some()
    ask(turns, "a", "b")
    begin(turns, unread)
    place = (kinds.DEPLOYMENT.name, POOL)
    before = copy.deepcopy(turns.api.objects[place]["spec"])
    edit(turns, unread, steps="many")
    assert turns.holders == ("a", "b")
    assert turns.api.objects[place]["spec"] == before, "the pods of both go on"
    conditions = {each["type"]: each for each in turns.pool["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "JobInvalid"
    assert f"'{unread}': The spec of this RLJob is not valid" in conditions["Stalled"]["message"]
    ask(turns, "c")
    assert turns.holders == ("a", "b")
    edit(turns, unread, steps=60)
    assert turns.holders == ("a", "b")
    assert "Stalled" not in {each["type"] for each in turns.pool["status"]["conditions"]}


def test_pool_is_tried_again_while_a_webhook_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = some()
    ask(turns, "a")
    apply = turns.api.apply

    def hooked(kind: Kind, manifest: Manifest, *, manager: str, subresource: str = "") -> Manifest:
        if kind == kinds.DEPLOYMENT:
            raise ApiHookError(doing="PATCH", status=500, message="no")
        return apply(kind, manifest, manager=manager, subresource=subresource)

    turns.make("b")
    turns.say("b")
    with monkeypatch.context() as away:
        away.setattr(turns.api, "apply", hooked)
        for _ in range(2):
            with pytest.raises(ApiHookError):
                turns.settle()
    turns.settle()
    assert [turns.jobs_of(pod) for pod in turns.pods()] == [{"a", "b"}, {"a", "b"}]


@pytest.mark.parametrize("others_begun", [True, False])
def test_unreadable_job_that_has_not_begun_waits_again(others_begun: bool) -> None:
    turns = some()
    ask(turns, "a", "b")
    if others_begun:
        begin(turns, "b")
    edit(turns, "a", steps="many")
    for suspended in (True, False):  # somebody maintains the pool
        turns.pool["spec"]["suspend"] = suspended
        turns.api.touch(turns.pool, spec=True)
        turns.settle()
        assert turns.holders == ("b",)
    assert [turns.jobs_of(pod) for pod in turns.pods()] == [{"b"}, {"b"}], "its pods come back"
    edit(turns, "a", steps=60)
    ask(turns, "a")
    assert turns.holders == ("b", "a")
    edit(turns, "a", steps="many")
    turns.say("b", ENDED)
    turns.settle()
    assert not turns.holders
    assert not turns.pods(), "no GPU is kept"


@pytest.mark.parametrize("act", ["suspend", "delete"])
def test_unreadable_job_that_has_begun_frees_the_pool(act: str) -> None:
    turns = some()
    ask(turns, "a", "b")
    begin(turns, "b")
    edit(turns, "b", steps="many")
    if act == "delete":
        turns.delete("b")
    else:
        turns.suspend("b", wanted=True)
    turns.settle()
    assert turns.holders == ("a",)
    assert [turns.jobs_of(pod) for pod in turns.pods()] == [{"a"}, {"a"}]


def test_edited_job_that_cannot_share_any_more_releases_the_pool() -> None:
    turns = some()
    ask(turns, "a", "b")
    edit(turns, "b", lora=None)
    assert turns.holders == ("a",)
    turns.say("b")
    turns.settle()
    assert "without spec.training.lora" in turns.pool["status"]["waiting"][0]["why"]
    turns.say("a", ENDED)
    turns.settle()
    assert turns.holders == ("b",)


def test_third_run_waits_under_max_runs_2() -> None:
    turns = some()
    ask(turns, "a", "b", "c")
    assert turns.holders == ("a", "b")
    assert turns.pool["status"]["waiting"][0]["why"] == "spec.maxRuns of the pool is 2"
    turns.say("b", ENDED)
    turns.settle()
    assert turns.holders == ("a", "c")


def test_stalled_holder_releases_only_its_own_place() -> None:
    turns = some()
    ask(turns, "a", "b")
    turns.say("b", ConditionUpdate("Stalled", "True", "ScorerUnknown", "m"))
    turns.now += 1000.0
    turns.settle()
    assert turns.holders == ("a", "b"), "nobody else wants it"
    ask(turns, "c")
    assert turns.holders == ("a", "c")


def a_run(name: str, *, lora: bool = True, precision: str = "BF16", experts: str = "Frozen") -> Job:
    section = {"lora": {"rank": 4, "experts": experts}} if lora else {}
    training = {"steps": 60, "precision": precision, **section}
    return a_job_object(meta=a_meta(name), training=training)


ADAPTERS, WHOLE, FLOATS = a_run("one"), a_run("whole", lora=False), a_run("f", precision="FP32")
UNREAD = dataclasses.replace(a_run("unread"), spec=None, spec_error="no")
MERGED = a_run("merged", experts="Adapted")
OBSTACLES: list[tuple[Job, list[Job], int, str]] = [
    (WHOLE, [], 1, ""),
    (ADAPTERS, [a_run("two")], 2, ""),
    (ADAPTERS, [a_run("two")], 1, "spec.maxRuns of the pool is 1"),
    (WHOLE, [ADAPTERS], 2, "without spec.training.lora a run has the engines for itself"),
    (ADAPTERS, [WHOLE], 2, "RLJob whole has no spec.training.lora: it has the engines for itself"),
    (ADAPTERS, [UNREAD], 2, "the spec of RLJob unread cannot be read"),
    (MERGED, [], 1, ""),
    (
        MERGED,
        [ADAPTERS],
        2,
        "with spec.training.lora.experts Adapted a run has the engines for itself",
    ),
    (
        ADAPTERS,
        [MERGED],
        2,
        "RLJob merged has spec.training.lora.experts Adapted: it has the engines for itself",
    ),
    (FLOATS, [ADAPTERS], 2, "spec.training.precision is FP32, that of RLJob one BF16"),
]


@pytest.mark.parametrize(("job", "others", "most", "why"), OBSTACLES)
def test_compatibility_of_runs(job: Job, others: list[Job], most: int, why: str) -> None:
    pool = SamplerPoolSpec.model_validate({"model": {"uri": "s3://rl-data/model"}, "maxRuns": most})
    assert engine_sharing.obstacle(job, others, pool) == why
