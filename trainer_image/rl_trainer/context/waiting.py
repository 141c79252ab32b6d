"""How often a waiting trainer polls, and what it reports when it has waited too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_trainer.context.job import Job

SHOWN_CHARACTERS = 200
AHEAD = 4
"""Factor on the time between polls while the trainer does not wait."""
ENOUGH_SECONDS = 1.0
"""Between polls while the next step has all of its groups."""


def poll_seconds(tasks: int) -> float:
    """Seconds between polls of that many tasks, in [0.05, 5]: rarer where a poll costs more."""
    return min(5.0, max(0.05, 0.001 * tasks))


def poll_interval(tasks: int, *, missing: int, awaited: bool) -> float:
    """Seconds between polls for finished groups; a poll costs the store more the more there are.

    Args:
        tasks: groups of a step.
        missing: groups among them that have not finished.
        awaited: the trainer waits for them. Then the last eighth is polled for twice as often.
    """
    shortest = poll_seconds(tasks)
    if awaited:
        return shortest if 8 * missing <= tasks else 2 * shortest
    return AHEAD * shortest if missing > 0 else max(ENOUGH_SECONDS, AHEAD * shortest)


def queue_summary(job: Job, *, queue: Queue) -> str:
    """Tasks by state and samplers by state, for the message of a wait that timed out."""
    tasks = describe_tasks(job.stores.tasks.count(job.run, queue=queue))
    registered = job.stores.samplers.of_run(job.run)
    samplers = describe_samplers(registered, now=job.stores.mongo.now())
    return f"Tasks: {tasks}. Samplers: {samplers}."


def describe_tasks(counts: Mapping[TaskState, int]) -> str:
    """E.g. ``3 pending, 12 claimed``."""
    named = [f"{number} {state}" for state, number in counts.items() if number]
    return ", ".join(named) or "none"


def describe_samplers(samplers: Iterable[Sampler], *, now: float) -> str:
    """E.g. ``2 ready, 1 silent, 1 gone; last error: …``."""
    registered = list(samplers)
    alive = Counter(sampler.state for sampler in registered if sampler.is_alive(now))
    gone = sum(sampler.state == SamplerState.GONE for sampler in registered)
    counts = {state.value: alive[state] for state in SamplerState if state != SamplerState.GONE}
    counts |= {"silent": len(registered) - alive.total() - gone, "gone": gone}
    named = [f"{count} {state}" for state, count in counts.items() if count]
    text = ", ".join(named) or "none has registered"
    errors = [sampler.last_error for sampler in registered if sampler.last_error]
    return f"{text}; last error: {errors[-1][:SHOWN_CHARACTERS]}" if errors else text
