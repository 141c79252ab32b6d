"""An episode in a program: the program, and behind it the tests of a Harbor task."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.harbor import HarborTask
from rl_contracts.stores.files.harbor_tests import HarborTests
from rl_sampler.code.client import CodeCalls
from rl_sampler.code.replies import Judged, Ran
from rl_sampler.code.wire import GRACE_SECONDS, JudgeCall
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.gateway.session import Session
from rl_sampler.user_code.harbor_rewards import NoRewardError, rewards_of

LAST_CHARACTERS = 200
"""Of what failed tests said, in a message."""
NOTE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Played:
    """How the program of an episode ended, and what its tests said."""

    ran: Ran = field(default_factory=Ran)
    tested: Judged | None = None
    """None where the record is no Harbor task, or its program failed."""
    problem: str = ""
    """Why the tests gave no reward."""
    note: str = ""
    """Which of the tests' metrics are not stored as they were written."""

    @property
    def tests_log(self) -> str:
        """What the tests printed, with the note behind it."""
        log = "" if self.tested is None else self.tested.log
        return f"{log.rstrip()}\n{self.note}\n".lstrip() if self.note else log


async def play(
    code: CodeCalls,
    request: dict[str, Any],
    *,
    seconds: float,
    session: Session,
    task: HarborTask | None,
    archive: bytes,
) -> Played:
    """Run a program, and then the tests of its task in the same pod.

    Args:
        code: runs them.
        request: the call ``run``.
        seconds: longest time until the program's end is known.
        session: gets the reward of the tests, in place of one that the program posted.
        task: None where it is no Harbor task.
        archive: of its tests.

    Raises:
        CodeContainerError, TimeoutError: as ``CodeCalls.ask``, of either.
    """
    if task is None:
        return Played(await code.ask(request, Ran, seconds=seconds))
    async with code.call(request) as channel:
        async with asyncio.timeout(seconds):
            ran = await channel.receive(Ran)
        if ran.failure is not None or ran.late or ran.exit_code != 0:
            return Played(ran)
        await channel.send(_tests(task, archive))
        async with asyncio.timeout(task.tests_seconds + GRACE_SECONDS):
            tested = await channel.receive(Judged)
    if tested.failure is not None:
        return Played(ran, tested)
    try:
        return Played(ran, tested, note=_judged(session, tested, task))
    except NoRewardError as error:
        return Played(ran, tested, problem=str(error))


def _tests(task: HarborTask, archive: bytes) -> dict[str, Any]:
    tests: JudgeCall = {
        "archive": base64.b64encode(archive).decode(),
        "seconds": task.tests_seconds,
        "folder": task.folder,
    }
    variables = {**task.environment, **task.tests_environment}
    return {"call": "test", "tests": tests, "environment": variables}


def _judged(session: Session, tested: Judged, task: HarborTask) -> str:
    """Give the session the tests' reward; returns the note. Raises NoRewardError."""
    session.reward = None
    if tested.prevented:
        raise NoRewardError(f"its tests cannot run: {tested.prevented}")
    if tested.late:
        raise NoRewardError(f"its tests took more than {task.tests_seconds:g} s")
    try:
        rewards = rewards_of(tested.reward_json, tested.reward_text)
    except NoRewardError as error:
        output = tested.log.strip()[-LAST_CHARACTERS:]
        raise NoRewardError(
            f"{error}; the tests ended with exit code {tested.exit_code}: {output}"
        ) from error
    changes = session.judged(rewards.reward, rewards.metrics)
    return f"Metrics in reward.json: {changes}."[:NOTE_CHARACTERS] if changes else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTests:
    """The stored tests of a run's Harbor tasks. An outage of the bucket is waited for."""

    shared: SharedStores
    run: str

    async def read(self, sha256: str) -> bytes:
        """The archive of this SHA-256.

        Raises:
            ObjectMissingError, IntegrityError: it is not there, or not the one that was stored.
        """
        stores = self.shared.stores
        store = HarborTests(stores.objects, run_prefix=stores.run_prefix(self.run))
        # The claim that waits for it cancels it when it ends.
        return await self.shared.until_done(lambda: store.get(sha256))
