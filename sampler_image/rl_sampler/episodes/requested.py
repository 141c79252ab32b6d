"""Episodes that people request: chats with the served policy, and prompts that are replayed.

They are played as any other, with the job's tools and scorers, but no task is claimed and nothing
is written. Few run at a time, each takes one slot of the engine's like any other sequence, and a
person who disconnects ends the episode.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial

from aiohttp import web
from pydantic import ValidationError

from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, Rollout
from rl_contracts.documents.task import Message, Queue, Task
from rl_contracts.requested import (
    AT_ONCE,
    EPISODE_SECONDS,
    PATH,
    REQUEST_BYTES,
    STREAM,
    ChatMessage,
    EndEvent,
    EpisodeAnswer,
    EpisodeRequest,
    RefusedEvent,
)
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.group import Group
from rl_sampler.agents.member import Member
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.user import ScriptedUser
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.passthrough import RefusedRequestError, refusal, too_large
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.shared_stores import OUTAGES
from rl_sampler.episodes.episode import EpisodeRunner
from rl_sampler.episodes.listening import Listening
from rl_sampler.tasks.claims import Claim
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError

logger = logging.getLogger(__name__)

TOOLS_SECONDS = 20.0
"""Longest wait until the servers of the job's tools answer."""
NOT_SCORED = "a chat has no reference answer"


class RequestedEpisodes:
    """Plays episodes for people."""

    def __init__(self, assignment: Assignment, *, problems: Problems) -> None:
        """Refuse all until ``begin`` is called."""
        self._assignment, self._problems = assignment, problems
        self._runner: EpisodeRunner | None = None
        self._running = 0

    def begin(self, runner: EpisodeRunner) -> None:
        """Play episodes from now on."""
        self._runner = runner

    def stop(self) -> None:
        """Begin no more."""
        self._runner = None

    def add_to(self, application: web.Application) -> None:
        """Answer requests of an application."""
        application.router.add_post(PATH, self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Play the episode that a request asks for; by events where it accepts these."""
        body = await request.read()
        if len(body) > REQUEST_BYTES:
            return too_large(REQUEST_BYTES)
        if STREAM not in request.headers.get("Accept", ""):
            event = await self._outcome(body)
            if isinstance(event, RefusedEvent):
                return refusal(event.status, event.message)
            return web.json_response(text=event.answer.model_dump_json())
        listening = Listening()
        playing = asyncio.create_task(self._play_with_events(body, listening))
        playing.add_done_callback(partial(_add_failure, listening))
        try:
            return await _streamed(request, listening)
        finally:
            playing.cancel()
            await asyncio.wait({playing})

    async def _play_with_events(self, body: bytes, listening: Listening) -> None:
        listening.add(await self._outcome(body, listening))

    async def _outcome(
        self, body: bytes, listening: Listening | None = None
    ) -> EndEvent | RefusedEvent:
        """Play the episode of a request; how it ended."""
        try:
            asked = EpisodeRequest.model_validate_json(body)
            return EndEvent(answer=await self._play_soon(asked, listening))
        except ValidationError as error:
            return RefusedEvent(status=400, message=_first(error))
        except RefusedRequestError as error:
            return RefusedEvent(status=error.status, message=str(error))
        except (PromptError, ToolsRefusedError) as error:
            return RefusedEvent(status=422, message=str(error))
        except (EngineError, ToolDownError, *OUTAGES) as error:
            return RefusedEvent(status=503, message=str(error))
        except TimeoutError:
            message = f"the episode has not ended within {EPISODE_SECONDS:.0f} s"
            return RefusedEvent(status=504, message=message)

    async def _play_soon(self, asked: EpisodeRequest, listening: Listening | None) -> EpisodeAnswer:
        runner = self._runner
        if runner is None:
            state = str(self._problems) or "it starts or ends"
            raise RefusedRequestError(503, f"this sampler plays no episodes now: {state}")
        if self._running >= AT_ONCE:
            message = f"this sampler plays {AT_ONCE} episodes for people already"
            raise RefusedRequestError(429, message)
        self._running += 1
        try:
            async with asyncio.timeout(EPISODE_SECONDS):
                return await self._play(runner, asked, listening)
        finally:
            self._running -= 1

    async def _play(
        self, runner: EpisodeRunner, asked: EpisodeRequest, listening: Listening | None
    ) -> EpisodeAnswer:
        task = await self._task(runner, asked)
        why_not = _why_not_scored(runner, task) if asked.task else NOT_SCORED
        claim = Claim(task=task, renewed=time.monotonic())
        sampling = runner.spec.agent.sampling
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                group = await runner.group(claim, longest=None)
        except TimeoutError as error:
            cause = str(self._problems) or "no problem is known"
            message = f"the job's tools do not answer: {cause}"
            raise RefusedRequestError(503, message) from error
        group = replace(
            group, policy=replace(group.policy, sampling=_bounded(sampling, asked.max_tokens))
        )
        if not asked.task:  # a simulated user would answer in the person's place
            group = replace(group, users=lambda task: ScriptedUser(task.scenario))
        on_turn = None
        if listening is not None:
            on_turn = listening.on_turn(group.agent)
            # A program may ask for several responses at once; an environment may begin again.
            if not runner.rollout_runner.begins_itself:
                policy = replace(group.policy, listener=listening.listener(group.chat.decode))
                group = replace(group, policy=policy)
        member, rollout = await runner.rollout_runner.play_alone(
            group, scored=not why_not, on_turn=on_turn
        )
        return _answer(group, member, rollout, why_not)

    async def _task(self, runner: EpisodeRunner, asked: EpisodeRequest) -> Task:
        """The task as it would be claimed now, with one member."""
        run, agent = self._assignment.run, runner.spec.agent
        if not asked.task:
            if agent.kind == "Environment":
                message = "agent.kind Environment: its episodes begin in the environment, not here"
                raise RefusedRequestError(422, message)
            task = Task(
                id=f"{run}.chat.{0:08d}",
                run=run,
                queue=Queue.CONSUMED,
                sequence=0,
                example="",
                messages=[Message(role=each.role, content=each.content) for each in asked.messages],
                answer="",
                group_size=1,
                temperature=agent.sampling.temperature,
                created_step=0,
            )
        else:
            stored = await runner.shared.call(runner.shared.stores.tasks.get, [asked.task])
            if asked.task not in stored or stored[asked.task].run != run:
                message = f"task {asked.task} is not in the store of this run (any more)"
                raise RefusedRequestError(404, message)
            task = stored[asked.task]
        temperature = task.temperature if asked.temperature is None else asked.temperature
        return task.model_copy(
            update={
                "queue": Queue.CONSUMED,  # no policy is too old, or the wrong one
                "attempt": task.attempt + 1,
                "owner": self._assignment.sampler,
                "group_size": 1,
                "baseline": False,
                "temperature": temperature,
            }
        )


def _add_failure(listening: Listening, playing: asyncio.Task[None]) -> None:
    """Add the event of an unexpected error, or the person would wait for ever."""
    error = None if playing.cancelled() else playing.exception()
    if error is not None:
        logger.error("an episode for a person failed", exc_info=error)
        message = "the episode failed; the agent's log says why"
        listening.add(RefusedEvent(status=500, message=message))


async def _streamed(request: web.Request, listening: Listening) -> web.StreamResponse:
    """Send the events; a refusal before the first one is an answer with its status."""
    event = await listening.next()
    if isinstance(event, RefusedEvent):
        return refusal(event.status, event.message)
    response = web.StreamResponse(headers={"Content-Type": STREAM})
    await response.prepare(request)
    while True:
        await response.write(event.model_dump_json().encode() + b"\n")
        if isinstance(event, EndEvent | RefusedEvent):
            break
        event = await listening.next()
    await response.write_eof()
    return response


def _why_not_scored(runner: EpisodeRunner, task: Task) -> str:
    try:
        runner.rollout_runner.check_scorers(task)
    except PromptError as error:
        return str(error)
    return ""


def _bounded(sampling: Sampling, most: int | None) -> Sampling:
    if most is None:
        return sampling
    least = min(most, sampling.max_tokens_per_turn)
    return sampling.model_copy(update={"max_tokens_per_turn": least})


def _answer(group: Group, member: Member, rollout: Rollout, why_not: str) -> EpisodeAnswer:
    messages = member.conversation[len(group.messages) :] if member.history else []
    judged = not why_not and rollout.error is None
    return EpisodeAnswer(
        text=rollout.text,
        turns=rollout.turns,
        messages=[ChatMessage.model_validate(each) for each in messages],
        stop_reason=rollout.stop_reason,
        spans=rollout.spans,
        temperature=GREEDY_TEMPERATURE if rollout.greedy else rollout.temperature,
        greedy=rollout.greedy,
        answer=rollout.answer,
        reward=rollout.reward if judged else None,
        parts=rollout.parts,
        not_scored=why_not,
        error=rollout.error,
    )


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
