"""Samples from the policy for one claim: waits for slots and for updates, ends with the claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, ImageSpan
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Queue
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.prompt import tokens_left
from rl_sampler.engine.client import GENERATE_SECONDS, Engine
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineProtocolError, EngineUnavailableError
from rl_sampler.engine.growth import Progress
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.serving import MODEL_LABEL, Serving, label_of
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.tasks.claims import Claim, UnusableMemberError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The engine's answer to a request."""

    generations: list[Generation]
    queue_seconds: float
    """Wait for slots of the engine."""
    generate_seconds: float
    step: int
    """Of the policy that was served when the request began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Hears the tokens of every response while they are sampled."""

    progress: Progress
    begins: Callable[[bool], None]
    """Called where a response begins; True: it begins again, and its tokens so far are void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Sends the requests of one claim to the engine."""

    claim: Claim
    sampling: Sampling
    stop_tokens: tuple[int, ...]
    engine: Engine
    watch: EngineWatch
    serving: Serving
    slots: Slots
    counters: Counters
    greedy: bool = False
    """The engine takes the most probable token each time."""
    images: RunImages | None = None
    """Where stored images are read; None where no prompt shows any."""
    member: int = 0
    """Whose tokens are sampled."""
    routed: bool = False
    """The engine is asked for the experts that its routers choose."""
    listener: Listener | None = None
    """Of responses for which ``sample`` is given no ``progress``."""

    def room(self, context: int) -> int:
        """Tokens that may follow ``context`` tokens; less than 1 where the context is full."""
        info = self.serving.engine
        longest = self.sampling.max_context_tokens
        return (min(longest, info.max_req_input_len) if info else longest) - context

    async def sample(
        self,
        context: Sequence[int],
        *,
        images: Sequence[ImageSpan] = (),
        members: int = 1,
        limit: int | None = None,
        stops: tuple[str, ...] = (),
        progress: Progress | None = None,
        known: int = 0,
        keep: bool = True,
    ) -> Sampled:
        """Sample responses to one context.

        Args:
            context: token ids.
            images: where images are in the context.
            members: number of responses.
            limit: most tokens of a response; ``maxTokensPerTurn`` by default.
            stops: texts that end a response; those of ``agent.sampling.stop`` by default.
            progress: called with a response's number and its new tokens, as they come. Hazard: an
                update of the weights may repeat a request, which then begins again; only with
                ``weightSync.pause: Retract`` and with adapters it does not.
            known: tokens of the context whose experts are known.
            keep: the tokens are kept at once; else the caller says it to the claim later.

        Raises:
            PromptError: the context leaves no room.
            EngineError: the engine is down or serves no published policy.
            EpisodeEndedError: the claim was ended on purpose.
            UnusableMemberError: the version of an evaluation is no longer served.
            ObjectMissingError, IntegrityError: an image is no longer what was stored.
        """
        files = await self._files(images)
        info = self.serving.engine
        if info is None:
            raise EngineUnavailableError("engine is not up")
        request = GenerateRequest(
            prompt=Placeholders.collapsed(context, images),
            prompt_tokens=len(context),
            images=files,
            members=members,
            temperature=GREEDY_TEMPERATURE if self.greedy else self.claim.task.temperature,
            greedy=self.greedy,
            max_new_tokens=tokens_left(
                prompt=len(context),
                turn=limit or self.sampling.max_tokens_per_turn,
                context=self.sampling.max_context_tokens,
                engine=info.max_req_input_len,
            ),
            stop_tokens=self.stop_tokens,
            stop_texts=stops or tuple(self.sampling.stop),
            routed_from=known if self.routed else None,
        )
        queued, self.claim.counted_by_slots = time.monotonic(), True
        async with self.slots.take(members, of=info.max_running_requests):
            started = time.monotonic()
            generations, step = await self._sample_until_valid(request, progress)
        if keep:
            self.claim.keep_tokens(step, member=self.member)
        return Sampled(
            generations=generations,
            queue_seconds=started - queued,
            generate_seconds=time.monotonic() - started,
            step=step,
        )

    async def _files(self, images: Sequence[ImageSpan]) -> tuple[str, ...]:
        if not images:
            return ()
        assert self.images is not None, "no prompt shows images"
        return await self.claim.run(self.images.read([image.sha256 for image in images]))

    async def _sample_until_valid(
        self, request: GenerateRequest, progress: Progress | None
    ) -> tuple[list[Generation], int]:
        """Repeat a request until no update of the weights invalidates the answer.

        Returns:
            The answer, and the step of the policy that was served when its request began.
        """
        serving, again = self.serving, False
        while True:
            if self.listener is not None:
                self.listener.begins(again)
            if serving.updating:
                resumed = serving.wait_until(lambda: not serving.updating, seconds=GENERATE_SECONDS)
                await self.claim.run(resumed)
            policy, key, commits = self._served(), serving.cache_key, serving.commits
            keyed = replace(request, cache_key=key)
            with self.claim.sampling(policy.step, member=self.member):
                answer = await self._attempt(keyed, label_of(policy), progress)
            updated = serving.updating or serving.commits != commits
            if not is_invalidated(answer, label=label_of(policy), keyed=bool(key), updated=updated):
                return answer, policy.step
            self.counters.requests_repeated += 1
            again = True

    def _served(self) -> PolicyPointer:
        policy, task = self.serving.policy, self.claim.task
        if policy is None:
            raise EngineUnavailableError("engine serves no published policy")
        if task.queue is Queue.EVALUATION and policy.version != task.evaluation_version:
            raise UnusableMemberError(
                f"the evaluation needs version {task.evaluation_version}, "
                f"the engine serves version {policy.version}"
            )
        return policy

    async def _attempt(
        self, request: GenerateRequest, label: str, progress: Progress | None
    ) -> list[Generation]:
        if progress is None and self.listener is not None:
            progress = self.listener.progress
        growing = {} if progress is None else {"progress": progress}
        try:
            if not self.serving.adapters:
                return await self.claim.run(self.engine.generate(request, **growing))
            # Hazard: await nothing between reading the label and here, or its adapter is unloaded.
            with self.serving.using(label):
                request = replace(request, adapter=label)
                generations = await self.claim.run(self.engine.generate(request, **growing))
            return [relabelled(generation, label) for generation in generations]
        except EngineUnavailableError:
            self.watch.check_soon()
            raise


def relabelled(generation: Generation, label: str) -> Generation:
    """The answer with its tokens marked with the adapter that sampled them.

    The engine marks tokens with the weights below the adapter, which must be the model's. A request
    keeps its adapter to its end.

    Raises:
        EngineProtocolError: the engine's weights are not the model's.
    """
    spans = generation.meta_info.weight_versions
    other = [span.version for span in spans if span.version != MODEL_LABEL]
    if other:
        raise EngineProtocolError(f"adapter {label} was applied to weights {other[0]!r}")
    meta = generation.meta_info.model_copy(
        update={"weight_versions": [span.model_copy(update={"version": label}) for span in spans]}
    )
    return generation.model_copy(update={"meta_info": meta})


def is_invalidated(
    generations: Sequence[Generation], *, label: str, keyed: bool, updated: bool
) -> bool:
    """Whether an update of the weights invalidated an answer.

    Where the cache outlives updates (``InPlace``), a request that reached the engine after the
    update may have used a prefix that older weights computed. Then its first token is of other
    weights than its cache key.

    Args:
        generations: the answer.
        label: of the weights that were served when the request was sent.
        keyed: whether the request had the cache key of these weights.
        updated: whether an update began after the request was sent.
    """
    if updated and any(
        generation.meta_info.finish_reason.type == "abort" for generation in generations
    ):
        return True
    firsts = [generation.meta_info.weight_versions[:1] for generation in generations]
    return keyed and any(span.version != label for first in firsts for span in first)
