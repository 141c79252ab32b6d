"""What is learned, from which data, by whom acted out and how rewarded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, Name, S3Uri, rule, rules


class ModelSource(Model):
    """The model that training starts from."""

    uri: S3Uri
    """Folder in Hugging Face layout (config, tokenizer, safetensors), e.g. ``s3://models/tiny``."""


class Columns(Model):
    """Which fields of a record hold what."""

    id: Annotated[str, Field(min_length=1, max_length=64)] = "id"
    query: Annotated[str, Field(min_length=1, max_length=64)] = "query"
    answer: Annotated[str, Field(min_length=1, max_length=64)] = "answer"


class DatasetSource(Model):
    """A file of records."""

    name: Name
    uri: Annotated[S3Uri, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/.+\.jsonl$")]
    """A JSONL object, e.g. ``s3://datasets/gsm8k/train.jsonl``."""
    columns: Columns = Field(default_factory=Columns)


class Data(Model):
    """Training and validation data."""

    train: Annotated[list[DatasetSource], Field(min_length=1, max_length=1)]
    validation: Annotated[list[DatasetSource], Field(max_length=1)] = Field(default_factory=list)


class Sampling(Model):
    """How the policy is sampled."""

    # For a whole number the API server compares with the bound's integer part: 0 would pass.
    model_config = rules(rule("self.temperature >= 0.01", "temperature must be at least 0.01"))
    temperature: Annotated[float, Field(ge=0.01, le=2.0)] = 1.0
    """Log-probabilities are those of the distribution at this temperature, everywhere."""
    max_tokens_per_turn: Annotated[int, Field(ge=1, le=131072)] = 512
    max_context_tokens: Annotated[int, Field(ge=2, le=262144)] = 8192
    """Prompt and response together."""


class Agent(Model):
    """Who acts out an episode."""

    model_config = rules(
        rule(
            "self.sampling.maxTokensPerTurn < self.sampling.maxContextTokens",
            "maxTokensPerTurn must be smaller than maxContextTokens, which also holds the prompt",
        )
    )
    kind: Literal["SingleTurn"] = "SingleTurn"
    system_prompt: Annotated[str, Field(max_length=16384)] = ""
    """Empty: no system message."""
    sampling: Sampling = Field(default_factory=Sampling)


class Scorer(Model):
    """One part of the reward."""

    kind: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
    """A name that the samplers know, e.g. ``ExactMatch``; another one stalls the job."""
    weight: Annotated[float, Field(ge=-100, le=100)] = 1.0


class Reward(Model):
    """The reward is the weighted sum of the scorers' values in [0, 1]."""

    scorers: Annotated[list[Scorer], Field(min_length=1, max_length=16)]
    answer_schema: Literal["Answer", "Raw"] = "Answer"
    """``Answer``: the text of the last ``<answer>…</answer>``; ``Raw``: the whole response."""


class Storage(Model):
    """Where shared state and weights live."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253)] = "rl-operator-stores"
    """Secret of the namespace with the MongoDB URI and the S3 endpoint, bucket and keys."""


class WeightSync(Model):
    """How policies reach the samplers."""

    every_steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """A version is published after every so many training steps, and after the last."""
    pause: Literal["Retract"] = "Retract"
    """Running requests are taken back and recomputed under the new weights."""
    timeout_seconds: Annotated[int, Field(ge=5, le=86400)] = 600
    """Longest time a sampler may take to stage and load one version."""
    keep_last: Annotated[int, Field(ge=2, le=10000)] = 8
    """Published versions kept in the bucket."""
