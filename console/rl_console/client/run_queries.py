"""Data of a job's run: metrics and trajectories."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from rl_console.client.metrics import Metrics, chosen
from rl_console.errors import TimeOverError, UsageError
from rl_console.queries.every_step import every_step
from rl_console.queries.run_data import RunData
from rl_console.queries.source import checked
from rl_contracts.documents.rollout import StopReason
from rl_contracts.queries.answers import RolloutAnswer, RolloutRow
from rl_contracts.queries.kinds import MOST_HITS, MOST_POINTS, MetricsQuery, SearchQuery

SEARCH_SECONDS = 60.0
"""Deadline of a search that names none."""


class RunQueries(ABC):
    """What a job's run can be asked."""

    @property
    @abstractmethod
    def _data(self) -> RunData:
        """The run, with the rights of the user."""

    def metrics(
        self,
        columns: Sequence[str] = (),
        *,
        first: int = 0,
        last: int | None = None,
        points: int | None = None,
    ) -> Metrics:
        """Metrics by step.

        Args:
            columns: e.g. ``reward_mean``, or ``reward_parts.`` for all that begin with it; at most
                64. Empty: the first 64 by name.
            first: step.
            last: step; None: the newest.
            points: at most so many rows, up to 2,000: each is the mean of some steps. None: a row
                for each step.

        Raises:
            NotFoundError: the run has no data yet, or no more.
            UsageError: it has no such column, or a number is out of range.
        """
        data, most = self._data, MOST_POINTS if points is None else points
        with checked():
            query = MetricsQuery(first=first, last=last, points=most)
        wanted = chosen(columns, data.metrics(MetricsQuery(points=1)).names)
        if points is None:
            return Metrics(every_step(data, columns=wanted, first=first, last=last))
        return Metrics([data.metrics(query.model_copy(update={"columns": wanted}))])

    def trajectories(
        self,
        *,
        first: int = 0,
        last: int | None = None,
        text: str = "",
        tool: str = "",
        reward_min: float | None = None,
        reward_max: float | None = None,
        stop_reason: StopReason | None = None,
        errors: bool = False,
        skip: int = 0,
        timeout: float = SEARCH_SECONDS,
    ) -> Iterator[RolloutRow]:
        """Trained trajectories that meet all conditions, the newest step first, as they are found.

        Args:
            first: step.
            last: step; None: the newest.
            text: part of a response, whatever its case.
            tool: part of the name of a tool that was called.
            reward_min: least reward.
            reward_max: largest reward.
            stop_reason: why the episode ended.
            errors: only those in which a turn or a tool failed.
            skip: leave out so many of step ``last``, as the error of a search says.
            timeout: seconds of searching, without what is done with each trajectory.

        Raises:
            TimeOverError: the search has not come to ``first`` in time; says where to go on.
            UsageError: a value cannot be asked for, or ``skip`` is given without ``last``.
        """
        if skip and last is None:
            raise UsageError(
                f"skip={skip} leaves out trajectories of step last", remedy="Name last"
            )
        with checked():
            query = SearchQuery(
                first=first,
                last=last,
                text=text,
                tool=tool,
                reward_min=reward_min,
                reward_max=reward_max,
                stop_reason=stop_reason,
                errors=errors,
                skip=skip,
            )
        spent = 0.0
        while True:
            began = time.monotonic()
            page = self._data.trajectories(query, most=MOST_HITS, seconds=0.0)
            spent += time.monotonic() - began
            yield from page.hits
            if page.next_last is None:
                return
            if spent > timeout:
                place = f"last={page.next_last}, skip={page.next_skip}"
                raise TimeOverError(
                    f"searched down to step {page.next_last + (page.next_skip == 0)} "
                    f"in {spent:.0f} s",
                    remedy=f"Go on with {place}, or with a longer timeout",
                )
            query = query.model_copy(update={"last": page.next_last, "skip": page.next_skip})

    def trajectory(
        self, name: str, *, step: int | None = None, first_token: int = 0
    ) -> RolloutAnswer:
        """One trajectory by turn and by token.

        Args:
            name: its id.
            step: that trained it, if known; then fewer batches are read.
            first_token: of the tokens that come with it, up to 65,536.

        Raises:
            NotFoundError: it does not exist (any more).
        """
        return self._data.trajectory(name, step=step, first_token=first_token)
