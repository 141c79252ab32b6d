"""Sessions whose policy says what a script has, in tokens that no tokenizer would choose."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from rl_contracts.documents.arrays import pack_int32
from rl_contracts.spec.agent.agents import Sampling
from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.prompt import Prompts
from rl_sampler.engine.growth import Progress
from rl_sampler.engine.protocol import Generation
from rl_sampler.gateway.session import Session
from rl_sampler.tasks.claims import Claim
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.chat_models import real_prompts
from tests.unit.rl_sampler.agents.scripted import KNOWN, ScriptedEngine

Line = str | Exception
STEP = KNOWN["4"].step


def generation(
    tokens: Sequence[int], *, reason: str = "stop", matched: int | str | None = None
) -> Generation:
    """A response of version 4."""
    return Generation.model_validate(
        {
            "output_ids": list(tokens),
            "meta_info": {
                "finish_reason": {"type": reason, "matched": matched},
                "output_token_logprobs": [
                    [-0.01 * (index + 1), token, None] for index, token in enumerate(tokens)
                ],
                "weight_versions": [{"version": "4", "start": 0, "end": len(tokens)}],
            },
        }
    )


def expert_of(token: int) -> int:
    return token % 1000


def routed(response: Generation, tokens: Sequence[int], *, known: int) -> Generation:
    """A response with the experts of its tokens from ``known`` on, but for the last."""
    packed = pack_int32(expert_of(token) for token in tokens[known:-1])
    update = {"routed_experts": base64.b64encode(packed).decode()}
    return response.model_copy(update={"meta_info": response.meta_info.model_copy(update=update)})


@dataclass
class ScriptedPolicy:
    """Says the script's next lines; ends its turn unless a limit or a stop text cuts it."""

    prompts: Prompts
    script: list[Line]
    longest: int = 8192
    sampling: Sampling = field(default_factory=Sampling)
    claim: Claim = field(default_factory=lambda: Claim(task=a_task(), renewed=0.0))
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    serving: Any = field(default_factory=lambda: SimpleNamespace(known=KNOWN))
    contexts: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    routed: bool = False
    """Each token that is run chooses ``expert_of`` it."""
    known: list[int] = field(default_factory=list)
    during: Callable[[], object] = lambda: None
    """Called in the middle of each response."""
    member: int = 0

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return tuple(self.prompts.stop_tokens)

    def room(self, context: int) -> int:
        return self.longest - context

    async def sample(
        self,
        context: Sequence[int],
        *,
        members: int = 1,
        limit: int | None = None,
        stops: tuple[str, ...] = (),
        progress: Progress | None = None,
        known: int = 0,
        keep: bool = True,
    ) -> Sampled:
        self.known.append(known)
        self.contexts.append(list(context))
        made = []
        for number in range(members):
            line = self.script.pop(0)
            if isinstance(line, Exception):
                raise line
            made.append(self._response(line, limit or 512, stops))
            if progress is not None:
                for token in made[-1].output_ids:
                    await progress(number, [token])
                    self.during()
        self.outputs += [each.output_ids for each in made]
        if self.routed:
            made = [routed(each, [*context, *each.output_ids], known=known) for each in made]
        if keep:
            self.claim.keep_tokens(STEP, member=self.member)
        return Sampled(generations=made, queue_seconds=0.0, generate_seconds=0.0, step=STEP)

    def _response(self, line: str, limit: int, stops: tuple[str, ...]) -> Generation:
        tokens = self.prompts.tokens(line) if line else []
        for stop in stops:
            if stop in line:
                cut = self.prompts.tokens(line[: line.index(stop) + len(stop)])
                return generation(cut, matched=stop)
        tokens = [*tokens, self.prompts.stop_tokens[0]]
        if len(tokens) > limit:
            return generation(tokens[:limit], reason="length")
        return generation(tokens, matched=tokens[-1])


def a_session(
    script: Sequence[Line],
    *,
    model: str = "qwen3_instruct_2507",
    prompts: Prompts | None = None,
    most_responses: int = 256,
    form: ToolCallFormat = "Hermes",
    **options: Any,
) -> tuple[Session, ScriptedPolicy]:
    """A session and its policy."""
    prompts = prompts or real_prompts(model)
    policy = ScriptedPolicy(prompts, list(script), **options)
    session = Session(
        policy=cast(Policy, policy),
        chats=Chats(prompts),
        form=form,
        most_responses=most_responses,
        streams=True,
    )
    return session, policy
