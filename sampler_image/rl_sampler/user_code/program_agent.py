"""Agent ``Program``: a program of the user's acts out the episode through the gateway."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import Any

from rl_contracts import tracing
from rl_contracts.documents.harbor import HarborTask
from rl_contracts.documents.rollout import ProgramOutcome, StopReason
from rl_contracts.documents.task import Message, Task
from rl_contracts.spec.agent.program import PROGRAM, Program
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents import saving
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.member import Member
from rl_sampler.agents.trace import Trace
from rl_sampler.code.client import CodeCalls, CodeContainerError
from rl_sampler.code.wire import GRACE_SECONDS, ProgramCall
from rl_sampler.gateway.past import Past
from rl_sampler.gateway.server import RESULT_PATH
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.tasks.claims import ProgramLostError, UnusableMemberError
from rl_sampler.user_code.call import UserCodeError
from rl_sampler.user_code.played import Played, RunTests, play

KILLED = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of programs that others have ended: their responses were none of the reasons."""
LAST_CHARACTERS = 200
"""Of a failed program's output, in the message of its member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAgent:
    """Runs a program for each member."""

    spec: RLJobSpec
    program: Program
    chats: Chats
    sessions: Sessions
    code: CodeCalls
    """Runs the programs: the container of this pod, or pods of their own."""
    url: str
    """Of the gateway."""
    tests: RunTests
    """Of Harbor tasks."""

    async def __call__(self, member: Member) -> StopReason:
        """Act out an episode that has no response yet; returns why its last response ended.

        Raises:
            UnusableMemberError: the program failed, and the manifest calls that an infrastructure
                error; or it got no response of the policy.
            UserCodeError: the program cannot be started.
            EngineError, EpisodeEndedError: the engine or the claim ended the session.
        """
        session = self._session(member)
        self.sessions.open(session)
        played = Played()
        try:
            played = await member.policy.claim.run(self._run(member, session))
        finally:
            self.sessions.close(session)
            _take_over(member, session, played)
        if session.failure is not None:
            raise session.failure
        self._judge(member, session, played)
        return member.turns[-1].stop_reason

    def _session(self, member: Member) -> Session:
        pause, policy = self.spec.weight_sync.pause, member.policy
        session = Session(
            policy=policy,
            chats=self.chats,
            form=self.spec.agent.call_format,
            most_responses=self.program.max_responses,
            streams=policy.serving.adapters or pause == "Retract",
            past=Past(member.saved, stop_tokens=policy.stop_tokens),
        )
        if member.on_turn is not None:
            session.on_response = lambda: _save(member, session)
        return session

    async def _run(self, member: Member, session: Session) -> Played:
        """Run the program to its end, or until the session has failed."""
        task = member.policy.claim.task
        program = self._call(task.harbor)
        request = {
            "call": "run",
            "program": program,
            "task": task_json(task, member.number),
            "environment": self._environment(session, task.harbor),
        }
        seconds = program["seconds"] + GRACE_SECONDS
        archive = await self.tests.read(task.harbor.tests) if task.harbor is not None else b""
        running = asyncio.create_task(
            play(
                self._code(task.harbor),
                request,
                seconds=seconds,
                session=session,
                task=task.harbor,
                archive=archive,
            )
        )
        failed = asyncio.create_task(session.failed.wait())
        try:
            await asyncio.wait({running, failed}, return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else Played()
        except CodeContainerError as error:
            raise ProgramLostError(f"the program was lost: {error}") from error
        except TimeoutError as error:
            raise UnusableMemberError(f"{self.code.name} did not end the program") from error
        finally:
            for waiting in (running, failed):
                waiting.cancel()
            await asyncio.gather(running, failed, return_exceptions=True)

    def _code(self, task: HarborTask | None) -> CodeCalls:
        """What runs a task's program: pods of its image.

        Raises:
            UnusableMemberError: there are none.
        """
        if task is None:
            return self.code
        try:
            return self.code.for_image(task.image)
        except CodeContainerError as error:
            raise UnusableMemberError(str(error)) from error

    def _call(self, task: HarborTask | None) -> ProgramCall:
        program, limits = self.program, [float(self.program.timeout_seconds)]
        if task is not None and task.agent_seconds is not None:
            limits.append(task.agent_seconds)
        return {
            "command": list(program.command),
            "seconds": min(limits),
            "megabytes": program.megabytes,
            "folder": task.folder if task is not None else None,
        }

    def _environment(self, session: Session, task: HarborTask | None) -> dict[str, str]:
        return {
            **(task.environment if task is not None else {}),
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": session.key,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": session.key,
            "RL_RESULT_URL": f"{self.url}{RESULT_PATH}",
            "RL_API_KEY": session.key,
            "RL_MODEL": "policy",
            **tracing.variables(),
        }

    def _judge(self, member: Member, session: Session, played: Played) -> None:
        """Apply the manifest's policy on failures."""
        for ended in filter(None, (played.ran, played.tested)):
            if ended.failure is not None and ended.failure.kind == "down":
                raise UnusableMemberError(ended.failure.message)
            if ended.failure is not None:
                raise UserCodeError(ended.failure.message)
        failed = self._failed(member.policy.claim.task, session, played)
        if not member.turns and session.too_long:
            member.policy.claim.too_long.add(member.number)
            raise UnusableMemberError(f"the program got no response: {session.too_long}")
        if not member.turns:
            reason = (
                f"the program asked the policy nothing: {failed}"
                if failed
                else ("the program ended without a response of the policy")
            )
            raise UnusableMemberError(reason)
        if failed and self.program.on_failure == "InfrastructureError":
            error = ProgramLostError if played.ran.exit_code in KILLED else UnusableMemberError
            raise error(f"the program failed: {failed}")
        if failed:
            member.blame(failed)
            member.forfeited = failed

    def _failed(self, task: Task, session: Session, played: Played) -> str:
        """Why the program counts as failed; empty where it does not."""
        ran = played.ran
        output = ran.log.strip()[-LAST_CHARACTERS:]
        if ran.late:
            return f"it took more than {self._call(task.harbor)['seconds']:g} s"
        if ran.exit_code != 0:
            return f"exit code {ran.exit_code}: {output}"
        if played.problem:
            return played.problem
        reward = self.spec.reward.of_record(scorer=task.scorer, answer_schema=task.answer_schema)
        scorers = [scorer.kind for scorer in reward.scorers if not scorer.is_own]
        if session.reward is None and PROGRAM in scorers:
            return "it posted no reward, which scorer Program needs"
        return ""


def task_json(task: Task, member: int) -> dict[str, Any]:
    """What a program is given of its task: the record, and which episode it is."""
    return {
        "run": task.run,
        "task": task.id,
        "attempt": task.attempt,
        "member": member,
        "split": task.split,
        "dataset": task.dataset,
        "example": task.example,
        "messages": [{"role": each.role, "content": each.text} for each in task.messages],
        "answer": task.answer,
        "scenario": task.scenario,
        "fields": task.record_fields,
    }


def _save(member: Member, session: Session) -> None:
    """Save the responses so far, by which another attempt answers the same requests."""
    shared = saving.of_member(member.policy.claim.task, member.number)
    unsaved = session.tree.nodes[len(member.finished) :]
    member.finished += [node.saved(shared) for node in unsaved]
    if member.on_turn is not None:
        member.on_turn(member)


def _take_over(member: Member, session: Session, played: Played) -> None:
    """Put the session's tokens and the program's end into the member."""
    member.trace = Trace()
    member.turns = session.tree.write(member.trace)
    member.replayed_tokens = session.replayed_tokens
    if session.past.given:
        member.continues, member.replayed_turns = session.past.continues, session.past.given
    member.reported = session.reward
    member.program = ProgramOutcome(
        exit_code=played.ran.exit_code,
        seconds=played.ran.seconds,
        log=played.ran.log,
        tests_log=played.tests_log,
        metrics=session.metrics,
        ignored=sorted(session.ignored),
    )
    if member.turns:
        member.messages = [
            Message.model_validate({"role": message.role, "content": message.text})
            for message in session.conversation
        ]
        member.history = [member.generated(member.turns[-1])]
