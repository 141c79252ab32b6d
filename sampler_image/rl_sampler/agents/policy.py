"""The policy as an episode asks it: one engine, whoever else asks it, and the claim's end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_contracts.documents.rollout import GREEDY_TEMPERATURE
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Queue
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.errors import UnusableError
from rl_sampler.agents.prompt import tokens_left
from rl_sampler.engine.client import GENERATE_SECONDS, Engine
from rl_sampler.engine.errors import EngineProtocolError, EngineUnavailableError
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.serving import MODEL_LABEL, Serving, label_of
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.tally import Tally
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.tasks.claims import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the engine answered to one request."""

    generations: list[Generation]
    queue_seconds: float
    generate_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Asks the engine for one claim."""

    claim: Claim
    sampling: Sampling
    stop_tokens: tuple[int, ...]
    engine: Engine
    watch: EngineWatch
    serving: Serving
    slots: Slots
    tally: Tally
    greedy: bool = False
    """It takes the most probable token each time."""

    def room(self, context: int) -> int:
        """Tokens that may follow ``context`` tokens; less than 1 where it is full."""
        info = self.serving.engine
        longest = self.sampling.max_context_tokens
        return (min(longest, info.max_req_input_len) if info else longest) - context

    async def sample(
        self, context: Sequence[int], *, members: int = 1, limit: int | None = None
    ) -> Sampled:
        """Sample responses to one context.

        Args:
            context: token ids.
            members: how many.
            limit: most tokens of a response; default ``maxTokensPerTurn``.

        Raises:
            PromptError: the context leaves no room.
            EngineError: the engine is down or serves no published policy.
            EpisodeEndedError: the claim was ended on purpose.
            UnusableError: an evaluation's version is not served any more.
        """
        info = self.serving.engine
        if info is None:
            raise EngineUnavailableError("engine is not up")
        request = GenerateRequest(
            prompt=list(context),
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
        )
        asked, self.claim.asked = time.monotonic(), True
        async with self.slots.take(members, of=info.max_running_requests):
            begun = time.monotonic()
            generations = await self._ask(request)
        return Sampled(
            generations=generations,
            queue_seconds=begun - asked,
            generate_seconds=time.monotonic() - begun,
        )

    async def _ask(self, request: GenerateRequest) -> list[Generation]:
        """Ask until no update of the weights spoils the answer."""
        serving = self.serving
        while True:
            if serving.committing:
                resumed = serving.wait_until(
                    lambda: not serving.committing, seconds=GENERATE_SECONDS
                )
                await self.claim.attend(resumed)
            policy, key, commits = self._served(), serving.cache_key, serving.commits
            self.claim.begin(policy.step)
            found = await self._attempt(replace(request, cache_key=key), label_of(policy))
            updated = serving.committing or serving.commits != commits
            if not is_spoilt(found, label=label_of(policy), salted=bool(key), updated=updated):
                self.claim.kept = True
                return found
            self.claim.drop()
            self.tally.requests_repeated += 1

    def _served(self) -> PolicyPointer:
        policy, task = self.serving.policy, self.claim.task
        if policy is None:
            raise EngineUnavailableError("engine serves no published policy")
        if task.queue is Queue.EVALUATION and policy.version != task.evaluation_version:
            raise UnusableError(
                f"wants version {task.evaluation_version}, the engine serves {policy.version}"
            )
        return policy

    async def _attempt(self, request: GenerateRequest, label: str) -> list[Generation]:
        try:
            if not self.serving.adapters:
                return await self.claim.attend(self.engine.generate(request))
            # Nothing may be awaited between reading the label and here: its adapter would go.
            with self.serving.using(label):
                asked = replace(request, adapter=label)
                found = await self.claim.attend(self.engine.generate(asked))
            return [of_adapter(one, label) for one in found]
        except EngineUnavailableError:
            self.watch.doubt()
            raise


def of_adapter(generation: Generation, label: str) -> Generation:
    """An answer whose tokens are marked with the adapter that sampled them.

    The engine marks them with the weights beside the adapter, which must be the model's: a request
    keeps its adapter to its end.

    Raises:
        EngineProtocolError: somebody gave the engine other weights.
    """
    spans = generation.meta_info.weight_versions
    other = [span.version for span in spans if span.version != MODEL_LABEL]
    if other:
        raise EngineProtocolError(f"adapter {label} was applied to weights {other[0]!r}")
    meta = generation.meta_info.model_copy(
        update={"weight_versions": [span.model_copy(update={"version": label}) for span in spans]}
    )
    return generation.model_copy(update={"meta_info": meta})


def is_spoilt(
    generations: Sequence[Generation], *, label: str, salted: bool, updated: bool
) -> bool:
    """Whether an update of the weights made an answer useless.

    Where the cache outlives updates, a request that reached the engine only after one may have
    been given a prefix that older weights computed: then its first token is of other weights than
    its key.

    Args:
        generations: the answer.
        label: of the weights that were served when it was asked for.
        salted: whether it had their key, because the cache outlives updates.
        updated: whether an update has begun since.
    """
    if updated and any(
        generation.meta_info.finish_reason.type == "abort" for generation in generations
    ):
        return True
    firsts = [generation.meta_info.weight_versions[:1] for generation in generations]
    return salted and any(span.version != label for first in firsts for span in first)
