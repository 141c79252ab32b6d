"""A stored prompt, sampled again by the policy that is served now."""

from __future__ import annotations

from collections.abc import Iterator

from rl_console.actions.run_data.trajectory_text import prompt_text, turn_lines
from rl_console.actions.run_data.viewing import short, values_of, viewed
from rl_console.actions.talking.episode_text import (
    facts_of,
    refuse_failed,
    reward_text,
    turns_text,
    versions_text,
)
from rl_console.errors import NotFoundError
from rl_console.invocation import Invocation
from rl_console.output import Shown, lines, show_data
from rl_console.plain_text import plain
from rl_console.queries.episodes import sampler_of
from rl_console.queries.source import checked
from rl_contracts.queries.answers import RolloutAnswer
from rl_contracts.requested import EpisodeAnswer, EpisodeRequest


def replay_trajectory(
    invocation: Invocation,
    job: str,
    trajectory: str,
    *,
    step: int | None,
    temperature: float | None,
    pod: str,
    operator_namespace: str,
) -> None:
    """Print a stored trajectory, and what the present policy makes of its prompt.

    Args:
        invocation: cluster, namespace and form of the output.
        job: whose run.
        trajectory: id of the stored one.
        step: that trained it, if known.
        temperature: None: that of the stored one's task.
        pod: of the sampler; empty: any.
        operator_namespace: of the operator.

    Raises:
        ConsoleError: there is no such trajectory, no prompt any more, or no sampler; or the episode
            could not go on.
    """
    with viewed(invocation, job, operator_namespace=operator_namespace) as data:
        then = data.trajectory(trajectory, step=step)
    if then.group is None:
        doing = f"reading the prompt of {short(then.row.id, then.run)}"
        raise NotFoundError(doing=doing, remedy="Retention has deleted it; choose a later one")
    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    with checked():
        request = EpisodeRequest(task=then.group.task, temperature=temperature)
    with sampler_of(cluster, invocation.tools, namespace, job, pod=pod) as sampler:
        now = sampler.play(request)
    show_data(compared(then, now, pod=sampler.pod), invocation.output)
    doing = f"replaying {short(then.row.id, then.run)}"
    refuse_failed(now, doing=doing, job=job, options=cluster.options(namespace))


def compared(then: RolloutAnswer, now: EpisodeAnswer, *, pod: str) -> Shown:
    """A stored trajectory and a new one of the same prompt."""
    return Shown(
        text="\n\n".join(_parts(then, now, pod)),
        values={"then": values_of(then), "now": values_of(now), "sampler": pod},
        names=[f"rollout/{short(then.row.id, then.run)}"],
    )


def _parts(then: RolloutAnswer, now: EpisodeAnswer, pod: str) -> Iterator[str]:
    row = then.row
    tokens = sum(turn.response.end - turn.response.start for turn in then.turns)
    reward = row.error.message if row.error else reward_text(row.reward, row.parts)
    yield lines(
        [
            ("trajectory", short(row.id, then.run)),
            ("then", f"{versions_text(row.versions)}, {tokens} tokens, {row.stop_reason}"),
            ("reward then", reward),
            ("now", f"{', '.join(facts_of(now))}, by {pod}"),
            ("reward now", _judged(now)),
        ]
    )
    yield from prompt_text(then.group)
    turns = "\n\n".join(
        "\n".join(turn_lines(place, turn)) for place, turn in enumerate(then.turns, start=1)
    )
    yield f"THEN\n{turns or plain(row.text)}"
    yield f"NOW\n{turns_text(now) or plain(now.text)}"


def _judged(now: EpisodeAnswer) -> str:
    if now.reward is not None:
        return reward_text(now.reward, now.parts)
    return f"not scored: {now.not_scored or (now.error.message if now.error else '')}"
