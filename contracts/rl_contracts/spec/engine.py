"""The inference engine of a sampler pod: SGLang, by typed options and by arguments of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Environment, EnvironmentSources, Image, Model, rule, rules

GpuCount = Annotated[int, Field(ge=1, le=64)]


class Speculation(Model):
    """Speculative decoding: the engine guesses several tokens and checks them in one pass.

    What is sampled, and its log-probabilities, are those of the policy all the same.
    """

    model_config = rules(
        rule(
            "self.?breadth.orValue(10) <= self.?draftTokens.orValue(12)",
            "speculation.breadth must be at most draftTokens, which is "
            "{self.?draftTokens.orValue(12)}: lower breadth or raise draftTokens",
            field="breadth",
        )
    )
    kind: Literal["NGram"] = "NGram"
    """Where guesses come from. `NGram`: from token sequences that the engine has served; it needs
    no further model. Draft models are refused: SGLang would load each policy into them, too."""
    draft_tokens: Annotated[int, Field(ge=2, le=64)] = 12
    """Number of guessed tokens of a sequence that are checked in one pass."""
    breadth: Annotated[int, Field(ge=1, le=32)] = 10
    """Most alternatives for a token among the guesses. 1: a single chain."""
    match_tokens: Annotated[int, Field(ge=2, le=64)] = 18
    """Number of last tokens of a sequence that are compared with earlier ones."""


class Engine(Model):
    """The inference engine of a sampler pod."""

    model_config = rules(
        rule(
            "self.?tensorParallel.orValue(1) % self.?expertParallel.orValue(1) == 0",
            "engine.expertParallel divides the GPUs of tensorParallel, which is "
            "{self.?tensorParallel.orValue(1)}: set it to a divisor of that number",
            field="expertParallel",
        ),
    )
    kind: Literal["SGLang"] = "SGLang"
    """Inference engine. There is one: SGLang."""
    image: Image | None = None
    """Image of the engine container. Unset: the installation's engine image."""
    tensor_parallel: GpuCount = 1
    """Number of GPUs that compute each layer together and divide the weights. Must divide the
    model's attention heads."""
    data_parallel: GpuCount = 1
    """Number of copies of the model in one engine, each on tensorParallel GPUs. The product is the
    number of GPUs that resources ask for."""
    expert_parallel: GpuCount = 1
    """Number of groups among the tensorParallel GPUs that have different experts. 1: all GPUs
    divide each expert. For mixtures of experts."""
    memory_fraction: Annotated[float, Field(ge=0.05, le=0.97)] | None = None
    """Share of each GPU's memory for weights and the cache of keys and values. Unset: SGLang's
    choice, between 0.7 and 0.9 by the size of the GPU."""
    context_tokens: Annotated[int, Field(ge=16, le=262_144)] | None = None
    """Most tokens of a request, prompt and response together. At least
    agent.sampling.maxContextTokens, at most what the model was made for. Unset: the latter."""
    weight_precision: Literal["FP8"] | None = None
    """Type of the weights of linear layers, quantized from the published BF16 at each update. For
    models of the families qwen2 and qwen3. Needs algorithm.offPolicy.correction TIS, IcePop or MIS.
    Unset: training.precision."""
    cache_precision: Literal["FP8E4M3", "FP8E5M2"] | None = None
    """Type of the numbers in the cache of keys and values: 8 bits hold twice the tokens of BF16.
    Needs algorithm.offPolicy.correction TIS, IcePop or MIS. Unset: the type of the weights."""
    speculation: Speculation | None = None
    args: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Further arguments for SGLang's server, after those that the operator sets, e.g.
    `--schedule-policy`, `lpm`. Arguments that the operator sets are refused."""
    env: Environment = Field(default_factory=list)
    """Environment variables of the engine container, as in core/v1."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables of the engine container."""
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800
    """Longest time in seconds that the engine may take to start and load its model; then its
    container is restarted."""
