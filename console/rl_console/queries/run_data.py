"""Data of one run, typed: what commands, pages and notebooks ask for, each in a call.

A question of the query layer is bounded; these calls ask as many as they need, and say where they
ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_console.queries.source import Source, answer, checked
from rl_contracts.documents.task import TaskState
from rl_contracts.queries.answers import (
    GroupRow,
    ImageAnswer,
    MetricsAnswer,
    PoliciesAnswer,
    PolicyRow,
    PromptsAnswer,
    ReportAnswer,
    RolloutAnswer,
    RolloutRow,
    SearchAnswer,
    StepAnswer,
    SummaryAnswer,
)
from rl_contracts.queries.kinds import (
    GROUPS_PER_PAGE,
    MOST_HITS,
    PROMPTS_PER_PAGE,
    ImageQuery,
    MetricsQuery,
    PoliciesQuery,
    PromptsQuery,
    ReportQuery,
    RolloutQuery,
    SearchQuery,
    StepQuery,
    SummaryQuery,
)

MOST_POSITIONS = 2048
"""Positions of the stream that are looked through for dropped groups of one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Trajectories that meet the conditions of a search."""

    hits: list[RolloutRow]
    read: int
    """Trajectories that were read."""
    next_last: int | None
    """Step where the search goes on; None: the whole range was looked through."""
    next_skip: int = 0
    """Trajectories of this step that were looked through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeBatch:
    """A batch with all of its groups, and those that were dropped beside them."""

    step: StepAnswer
    """With the rows of all groups."""
    dropped: list[GroupRow]
    """Groups that will never be trained, among the prompts from the batch's first to the next
    batch's first."""
    unseen: range = range(0)
    """The last of these prompts, which were not looked through."""


@dataclass(frozen=True, slots=True)
class RunData:
    """Data of the run of one job, with the rights of a source. For any thread.

    Every call raises a ConsoleError: NotFoundError where the run or what is named does not exist,
    NotAllowedError without the right to ``get`` the job, UsageError for a number that is out of
    range.
    """

    source: Source
    namespace: str
    job: str
    options: str = ""
    """Of a command in a message, as ``Cluster.options`` gives them; empty: kubectl's defaults."""

    @property
    def run(self) -> str:
        """Id of the run, by which its documents are named."""
        raw = self.source.job(self.namespace, self.job)
        return str((raw.get("status") or {}).get("runId") or raw["metadata"]["uid"])

    def summary(self) -> SummaryAnswer:
        """The run document, its samplers and its evaluations."""
        return answer(self.source, self.namespace, self.job, SummaryQuery(), SummaryAnswer)

    def metrics(self, query: MetricsQuery) -> MetricsAnswer:
        """Step metrics of a range."""
        return answer(self.source, self.namespace, self.job, query, MetricsAnswer)

    def report(self) -> dict[str, Any] | None:
        """``report.json`` of the run; None until it has ended."""
        return answer(self.source, self.namespace, self.job, ReportQuery(), ReportAnswer).report

    def trajectories(self, query: SearchQuery, *, most: int, seconds: float) -> Found:
        """Trained trajectories that meet all conditions, the newest step first.

        Args:
            query: range of steps and conditions.
            most: enough hits.
            seconds: after this time the search ends with what it has.
        """
        ends = time.monotonic() + seconds
        hits: list[RolloutRow] = []
        read = 0
        query = query.model_copy(update={"skip": query.skip or 0})
        while True:
            wanted = min(MOST_HITS, max(1, most - len(hits)))
            page = self._search(query.model_copy(update={"most": wanted}))
            hits += page.hits
            read += page.read
            over = page.next_last is None or len(hits) >= most or time.monotonic() > ends
            if over:
                return Found(
                    hits=hits, read=read, next_last=page.next_last, next_skip=page.next_skip
                )
            query = query.model_copy(update={"last": page.next_last, "skip": page.next_skip})

    def _search(self, query: SearchQuery) -> SearchAnswer:
        return answer(self.source, self.namespace, self.job, query, SearchAnswer)

    def trajectory(
        self, name: str, *, step: int | None = None, first_token: int = 0
    ) -> RolloutAnswer:
        """One trajectory with its tokens from ``first_token`` on.

        Args:
            name: its id, with or without the run's in front.
            step: that trained it, if known; else batches near its policy's step are looked through.
            first_token: index of the first token that is wanted.
        """
        whole = self._whole(name)
        with checked():
            query = RolloutQuery(rollout=whole, step=step, first_token=first_token)
        return answer(self.source, self.namespace, self.job, query, RolloutAnswer)

    def image(self, trajectory: str, sha256: str) -> ImageAnswer:
        """An image that a trajectory shows.

        Args:
            trajectory: its id, with or without the run's in front.
            sha256: of the image, as the trajectory names it.
        """
        whole = self._whole(trajectory)
        with checked():
            query = ImageQuery(rollout=whole, sha256=sha256)
        return answer(self.source, self.namespace, self.job, query, ImageAnswer)

    def _whole(self, name: str) -> str:
        """The id of a trajectory with the run's in front."""
        run = self.run
        return name if name.startswith(f"{run}.") else f"{run}.{name}"

    def batch(self, step: int) -> WholeBatch:
        """The batch that trained a step, and which groups were dropped beside it."""
        first = self._step(step, 0)
        rows = list(first.rows)
        for group in range(GROUPS_PER_PAGE, first.groups, GROUPS_PER_PAGE):
            rows += self._step(step, group).rows
        whole = first.model_copy(update={"rows": rows})
        positions = range(first.first_prompt, first.end_prompt)
        prompts = self._prompts(positions[:MOST_POSITIONS])
        dropped = [row for row in prompts if row.state is TaskState.DEAD]
        return WholeBatch(step=whole, dropped=dropped, unseen=positions[MOST_POSITIONS:])

    def _step(self, step: int, group: int) -> StepAnswer:
        with checked():
            query = StepQuery(step=step, first_group=group)
        return answer(self.source, self.namespace, self.job, query, StepAnswer)

    def _prompts(self, positions: range) -> Iterator[GroupRow]:
        for first in range(positions.start, positions.stop, PROMPTS_PER_PAGE):
            query = PromptsQuery(first=first, count=min(PROMPTS_PER_PAGE, positions.stop - first))
            given = answer(self.source, self.namespace, self.job, query, PromptsAnswer)
            yield from given.rows

    def policies(self, *, before: int | None = None) -> PoliciesAnswer:
        """A page of published versions, the newest first."""
        with checked():
            query = PoliciesQuery(before=before)
        return answer(self.source, self.namespace, self.job, query, PoliciesAnswer)

    def policy(self, version: int) -> PolicyRow | None:
        """One published version; None where the store has it no more."""
        rows = self.policies(before=version + 1).rows
        return next((each for each in rows if each.version == version), None)
