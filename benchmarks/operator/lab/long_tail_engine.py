"""A stand-in for SGLang that replays responses of a heavy tail: lengths, and seconds of tools.

Like ``paced_engine`` it samples at a pace and loads no weights. How long the k-th response to a
prompt is comes from a seeded table, so that runs can be compared.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from benchmarks.operator.lab.paced_engine import LOG_PROBABILITY, PacedEngine
from tests.models.tiny_model import END

TOKEN = 7
SHORTEST, MOST_TOOL_SECONDS = 4, 2.0


@dataclass(frozen=True, slots=True)
class Response:
    """One drawn response."""

    tokens: int
    tool_seconds: float


def drawn(seed: str, *, longest: int) -> Response:
    """A response by a seed: Pareto's tail (α 1.2) for the tokens, and for every fourth a tool."""
    generator = random.Random(seed)
    tokens = min(longest, int(SHORTEST * generator.paretovariate(1.2)))
    waits = min(MOST_TOOL_SECONDS, 0.05 * generator.paretovariate(1.1))
    return Response(tokens, waits if generator.random() < 0.25 else 0.0)


@dataclass
class LongTailEngine(PacedEngine):
    """One engine that replays ``drawn`` responses."""

    longest: int = 400
    asked: defaultdict[tuple[int, ...], itertools.count[int]] = field(
        default_factory=lambda: defaultdict(itertools.count)
    )
    """Responses so far, by prompt."""
    begun: list[int] = field(default_factory=list)
    """Tokens of every response that was begun, also where nobody waited for its end."""
    loaded: list[tuple[float, str]] = field(default_factory=list)
    """When which weights were loaded."""

    async def _load(self, request: web.Request) -> web.Response:
        answer = await super()._load(request)
        self.loaded.append((time.monotonic(), self.label))
        return answer

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self.resumed.wait()
        prompt = tuple(body["input_ids"])
        members = body["sampling_params"]["n"]
        responses = [
            drawn(f"{prompt}/{next(self.asked[prompt])}", longest=self.longest)
            for _ in range(members)
        ]
        self.begun += [response.tokens for response in responses]
        began = time.monotonic()
        await asyncio.sleep(max(map(self._seconds, responses)))
        made = [self._sequence(response, began=began) for response in responses]
        self.sampled += sum(response.tokens for response in responses)
        return web.json_response(made if members > 1 else made[0])

    def _seconds(self, response: Response) -> float:
        return response.tokens / self.tokens_per_second + response.tool_seconds

    def _sequence(self, response: Response, *, began: float) -> dict[str, Any]:
        """Each token by the weights that were loaded when it was sampled."""
        ids = [TOKEN] * (response.tokens - 1) + [END]
        labels = [
            self._label_at(began + index / self.tokens_per_second)
            for index in range(response.tokens)
        ]
        spans, start = [], 0
        for label, same in itertools.groupby(labels):
            end = start + len(list(same))
            spans.append({"version": label, "start": start, "end": end})
            start = end
        return {
            "output_ids": ids,
            "meta_info": {
                "finish_reason": {"type": "stop"},
                "output_token_logprobs": [[LOG_PROBABILITY, token, None] for token in ids],
                "weight_versions": spans,
            },
        }

    def _label_at(self, moment: float) -> str:
        before = [label for when, label in self.loaded if when <= moment]
        return before[-1] if before else self.label
