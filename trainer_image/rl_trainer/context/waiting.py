"""What the trainer says when it waits, and when it has waited too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_trainer.context.job import Job

SHOWN_CHARACTERS = 200
AHEAD = 4
"""While nobody waits, looks are so many times rarer."""
ENOUGH_SECONDS = 1.0
"""Between looks while the next step has all of its groups."""


def poll_seconds(tasks: int) -> float:
    """Seconds between looks at that many tasks: rarer where a look costs the store more."""
    return min(5.0, max(0.05, 0.001 * tasks))


def look_seconds(tasks: int, *, missing: int, awaited: bool) -> float:
    """Seconds between looks for finished groups; a look costs the store more the more there are.

    Args:
        tasks: groups of a step.
        missing: of them, those that were not found yet.
        awaited: the trainer waits for them. Then the last eighth is looked for twice as often.
    """
    shortest = poll_seconds(tasks)
    if awaited:
        return shortest if 8 * missing <= tasks else 2 * shortest
    return AHEAD * shortest if missing > 0 else max(ENOUGH_SECONDS, AHEAD * shortest)


def scene(job: Job, *, queue: Queue) -> str:
    """Tasks by state and samplers by state, for a wait that ended in vain."""
    tasks = describe_tasks(job.stores.tasks.count(job.run, queue=queue))
    found = job.stores.samplers.of_run(job.run)
    samplers = describe_samplers(found, now=job.stores.mongo.now())
    return f"Tasks: {tasks}. Samplers: {samplers}."


def describe_tasks(counts: Mapping[TaskState, int]) -> str:
    """E.g. ``3 pending, 12 claimed``."""
    named = [f"{number} {state}" for state, number in counts.items() if number]
    return ", ".join(named) or "none"


def describe_samplers(samplers: Iterable[Sampler], *, now: float) -> str:
    """E.g. ``2 ready, 1 silent, 1 gone; last error: …``: what a dead one said last is not told."""
    found = list(samplers)
    alive = Counter(one.state for one in found if one.is_alive(now))
    gone = sum(one.state == SamplerState.GONE for one in found)
    counts = {state.value: alive[state] for state in SamplerState if state != SamplerState.GONE}
    counts |= {"silent": len(found) - alive.total() - gone, "gone": gone}
    named = [f"{count} {state}" for state, count in counts.items() if count]
    text = ", ".join(named) or "none has registered"
    errors = [one.last_error for one in found if one.last_error]
    return f"{text}; last error: {errors[-1][:SHOWN_CHARACTERS]}" if errors else text
