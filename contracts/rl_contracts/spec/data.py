"""The model that training starts from, and the data that it learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.base import FOLDER, TEXT, Model, Name, S3Uri, rule, rules


class ModelFolder(Model):
    """A model in a bucket."""

    uri: S3Uri
    """Folder ``s3://…`` in Hugging Face layout."""


HUB_SCHEME = "hf://"
FILE_SCHEME = "file://"
REPOSITORY = r"hf://\w[\w.-]*/[\w.-]+(@[\w./-]+)?"
ModelUri = Annotated[
    str,
    Field(pattern=rf"^({FOLDER}|{REPOSITORY}|file:///.+)$", max_length=1024),
    WithJsonSchema({"type": "string", "pattern": "^(s3|hf|file)://."}),
]
"""The operator checks the rest: a CRD has room for 60 KB."""


class ModelSource(Model):
    """The model that training starts from."""

    uri: ModelUri
    """Folder ``s3://…`` or ``hf://org/name`` in Hugging Face layout."""
    revision: Annotated[str, Field(min_length=1, max_length=256), TEXT] | None = None
    """Of ``hf://``: branch, tag or commit; unset: main."""
    tokenizer_uri: ModelUri | None = None
    """Of a tokenizer in place of the model's own."""


Split = Literal["train", "validation", "test"]
Column = Annotated[str, Field(min_length=1, max_length=64), TEXT]
"""A field's name; its bounds are checked by the operator alone: they stand in 21 places."""


class Columns(Model):
    """Which fields of a record hold what."""

    model_config = rules(
        rule(
            "!has(self.query) || !has(self.messages)",
            "columns.query and messages exclude each other",
        )
    )
    id: Column | None = None
    """Unset: ``id`` where a record has it, else its place in the file."""
    query: Column | None = None
    """The user's only turn. Unset: ``query``."""
    messages: Column | None = None
    """A list of chat messages, asked up to the last user's turn."""
    answer: Column | None = None
    """Unset: ``answer``; with messages the assistant's last turn after the last user's."""
    scorer: Column | None = None
    """Names the scorer that judges the record, in place of all of ``reward.scorers``."""
    answer_schema: Column | None = None
    """Names the record's answer schema, in place of ``reward.answerSchema``."""
    scenario: Column | None = None
    """Kind Conversation: the user's further turns, or what it wants."""


BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
FILE = r"[^?#]+\.(jsonl?|parquet)"
HUB = r"hf://(datasets/)?\w[\w.-]*/[\w.-]+(@[\w.-]+)?(/[^?#@]+)?"


class DatasetSource(Model):
    """Records in one file, or in the files of one split on the hub."""

    model_config = rules(
        rule(
            "!has(self.split) || self.uri.startsWith('hf://')",
            "split is for hf:// sources: other URIs name one file",
        )
    )
    name: Name
    uri: Annotated[str, Field(pattern=rf"^(({BUCKET}|file://)/{FILE}|{HUB})$", max_length=1024)]
    """A ``.jsonl``, ``.json`` or ``.parquet`` under ``s3://`` or, in the trainer's pod, ``file://``;
    or ``hf://org/name[@revision][/path]``."""
    split: Annotated[str, Field(pattern=r"^\w+$", max_length=64)] | None = None
    """Of an hf:// source; unset: named as the list that it is in."""
    columns: Columns = Field(default_factory=Columns)


class TrainSource(DatasetSource):
    """A file of records and its share of the prompts."""

    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the prompts, relative to other sources'."""


BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class HubTokenReference(Model):
    """A key of a Secret of the namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253), TEXT]
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253), TEXT] = "token"


class Hub(Model):
    """Where hf:// sources come from."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/?#]+(/[^?#]*)?$", max_length=256)] = (
        "https://huggingface.co"
    )
    """The Hugging Face hub or a mirror of it."""
    token_secret_ref: HubTokenReference | None = None
    """Unset: no token is sent."""


class Data(Model):
    """Training and validation data."""

    train: (
        Annotated[list[TrainSource], Field(min_length=1, max_length=16, json_schema_extra=BY_NAME)]
        | None
    ) = None
    validation: Annotated[list[DatasetSource], Field(max_length=8, json_schema_extra=BY_NAME)] = (
        Field(default_factory=list)
    )
    """Sampled by ``training.evaluation``, a result for each source."""
    test: Annotated[list[DatasetSource], Field(max_length=8, json_schema_extra=BY_NAME)] = Field(
        default_factory=list
    )
    """Sampled once, by the last policy."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Of the order of records. Unset: ``training.seed``."""
    shuffle: bool = True
    """A new order for each pass; false: the file's own."""
    on_bad_record: Literal["Fail", "Skip"] = "Fail"
    """``Skip`` counts bad records in ``status.datasets``."""
    hub: Hub = Field(default_factory=Hub)

    @property
    def by_split(self) -> dict[Split, Sequence[DatasetSource]]:
        """All sources, by the list that they are in."""
        return {"train": self.train or [], "validation": self.validation, "test": self.test}


def uses_hub(data: Data) -> bool:
    """Whether any source comes from the hub."""
    return any(one.uri.startswith(HUB_SCHEME) for found in data.by_split.values() for one in found)


def model_of_hub(model: ModelSource) -> bool:
    """Whether the model or its tokenizer comes from the hub."""
    return any(uri.startswith(HUB_SCHEME) for uri in (model.uri, model.tokenizer_uri or ""))
