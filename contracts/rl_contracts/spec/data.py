"""The model that training starts from, and the data that it learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import (
    FOLDER,
    RUN_ID,
    Model,
    Name,
    ObjectName,
    S3Uri,
    SecretKey,
    rule,
    rules,
)


class ModelFolder(Model):
    """A model in a bucket."""

    uri: S3Uri
    """Folder `s3://<bucket>/<path>` with a model in Hugging Face layout: config.json, weights as
    safetensors, tokenizer."""


HUB_SCHEME = "hf://"
REPOSITORY = r"hf://\w[\w.-]*/[\w.-]+(@[\w./-]+)?"
COMMIT = "[0-9a-f]{40}"
ModelUri = Annotated[str, Field(pattern=rf"^({FOLDER}|{REPOSITORY})$", max_length=1024)]


class ModelSource(Model):
    """The model that training starts from, and its tokenizer."""

    model_config = rules(
        rule(
            "!has(self.revision) || self.uri.startsWith('hf://')",
            "model.revision is {self.revision}, and model.uri is a folder of a bucket, which has "
            "no revisions: upload that revision to a folder of its own, or remove revision",
            field="revision",
        ),
        rule(
            "!has(self.revision) || !self.uri.contains('@')",
            "model.revision is {self.revision}, and model.uri names a revision too: remove one of "
            "them",
            field="revision",
        ),
    )
    uri: ModelUri
    """Folder `s3://<bucket>/<path>` or hub repository `hf://<org>/<name>[@<revision>]`, in Hugging
    Face layout. A `file://` path is refused: trainer and samplers must read the same model."""
    revision: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Branch, tag or commit of an `hf://` model, in place of `@<revision>` in uri. The run records
    the commit that it stood for. Unset: main."""
    tokenizer_uri: ModelUri | None = None
    """Where to take the tokenizer from, written as uri is. It must have the model's own tokens.
    Unset: the model's own tokenizer."""


Split = Literal["train", "validation", "test"]
Column = Annotated[str, Field(min_length=1, max_length=64)]
"""A field's name."""


class Columns(Model):
    """Which fields of a record hold its id, question and answer."""

    model_config = rules(
        rule(
            "!has(self.query) || !has(self.messages)",
            "columns.query and messages exclude each other: a record has one question or one "
            "conversation; remove one of them",
        )
    )
    id: Column | None = None
    """Field with the record's id, unique within its source. Unset: `id` where a record has it, else
    the record's place in its files, e.g. `line 7`."""
    query: Column | None = None
    """Field with the question, shown to the policy as the user's only turn. Unset: `query`."""
    messages: Column | None = None
    """Field with a list of chat messages; the policy answers after the last user turn. Unset: query
    is read instead."""
    answer: Column | None = None
    """Field with the reference answer that scorers compare with. Unset: `answer`; with messages the
    assistant's turn after the last user turn. A record may lack it if no scorer compares."""
    scorer: Column | None = None
    """Field that names the one scorer that judges the record, in place of all of reward.scorers.
    Unset: all scorers judge."""
    answer_schema: Column | None = None
    """Field that names the record's answer schema, in place of reward.answerSchema. Unset:
    reward.answerSchema."""
    scenario: Column | None = None
    """Field with the user's further turns (a list or a text), or with agent.user set what the user
    wants. Only with agent.kind Conversation."""
    fields: Annotated[list[Column], Field(max_length=16)] = Field(default_factory=list)
    """Fields that scorers, programs, an agent of your own and resets of an environment are given.
    Empty: none."""


HARBOR = "Harbor"
"""The format of folders of tasks."""
BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
FILE = r"[^?#]+\.(jsonl?|parquet)"
FOLDER_OF_TASKS = r"[^?#]+/"
HUB = r"hf://(datasets/)?\w[\w.-]*/[\w.-]+(@[\w.-]+)?(/[^?#@]+)?"


class DatasetSource(Model):
    """Records in one file, in the files of one split of a hub dataset, or a folder of tasks."""

    model_config = rules(
        rule(
            "!has(self.split) || self.uri.startsWith('hf://')",
            "split is for hf:// sources, and uri is {self.uri}: other URIs name one file; "
            "remove split",
            field="split",
        ),
        rule(
            "(self.?format.orValue('Records') == 'Harbor') == "
            "(self.uri.endsWith('/') && !self.uri.startsWith('hf://'))",
            "uri is {self.uri}, and format is {self.?format.orValue('Records')}: a folder of "
            "Harbor tasks is under s3:// or file:// and ends with a slash, a file of records does "
            "not; correct one of them",
            field="uri",
        ),
    )
    name: Name
    """Name of the source, unique in its list; metrics and status use it."""
    format: Literal["Records", "Harbor"] = "Records"
    """What is there. `Records`: a file or a hub dataset with a record for each prompt. `Harbor`: a
    folder with a folder for each task, which has `task.toml`, `instruction.md` and `tests`."""
    uri: Annotated[
        str,
        Field(pattern=rf"^(({BUCKET}|file://)/({FILE}|{FOLDER_OF_TASKS})|{HUB})$", max_length=1024),
    ]
    """File of type `.jsonl`, `.json` or `.parquet` under `s3://`, or under `file://` in the
    trainer's pod; or `hf://<org>/<name>[@<revision>][/<path>]` of the hub. With format Harbor a
    folder under `s3://` or `file://`, with a slash at its end."""
    split: Annotated[str, Field(pattern=r"^\w+$", max_length=64)] | None = None
    """Split of an `hf://` dataset. Unset: the split named as the list that the source is in: train,
    validation or test."""
    columns: Columns = Field(default_factory=Columns)


class TrainSource(DatasetSource):
    """Training records and their share of the prompts."""

    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the prompts that come from this source, relative to the weights of the others."""


BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class HubTokenReference(Model):
    """A key of a Secret in the job's namespace that holds an access token."""

    name: ObjectName
    """Name of the Secret, in the job's namespace."""
    key: SecretKey = "token"
    """Key of the Secret whose value is the token."""


HUB = "https://huggingface.co"
"""Also the audience of tokens with which pods identify themselves there."""


class Hub(Model):
    """The Hugging Face hub or a mirror of it, for `hf://` models and datasets."""

    model_config = rules(
        rule(
            "!has(self.trustedPublisher) || !has(self.tokenSecretRef)",
            "data.hub.trustedPublisher and tokenSecretRef are two ways to one token: remove one",
            field="trustedPublisher",
        ),
        rule(
            f"!has(self.trustedPublisher) || self.endpoint == '{HUB}'",
            "data.hub.trustedPublisher is {self.trustedPublisher}, and the identity of the pods is "
            f"for {HUB} alone, not for {{self.endpoint}}: use tokenSecretRef there",
            field="trustedPublisher",
        ),
    )
    endpoint: Annotated[
        str, Field(pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$", max_length=256)
    ] = HUB
    """URL of the hub or of a mirror with the same API."""
    token_secret_ref: HubTokenReference | None = None
    """Secret with the token sent to the hub; needed for private or gated repositories and for
    training.checkpoint.hubRepo. Unset: no token is sent, unless trustedPublisher is set."""
    trusted_publisher: (
        Annotated[
            str,
            Field(pattern=r"^(datasets/)?[A-Za-z0-9][\w.-]*(/[\w.-]+)?$", max_length=200),
        ]
        | None
    ) = None
    """Instead of a Secret: account (`acme`) or repository (`acme/model`) of the hub that trusts the
    service account of the pods as a publisher. Pods exchange their identity for a token that is
    valid for an hour. The token of an account may read gated repositories, that of a repository
    may read or write this repository. Unset: no identity is sent."""
    allow_plain_http: bool = False
    """Whether the token may be sent without TLS, to a Service or a private address."""


class Images(Model):
    """Images that records may show a vision-language model, and their limits."""

    model_config = rules(
        rule(
            "!has(self.minPixels) || !has(self.maxPixels) || self.minPixels <= self.maxPixels",
            "data.images.minPixels must not exceed maxPixels: {self.minPixels} is more than "
            "{self.maxPixels}",
            field="minPixels",
        )
    )
    max_bytes: Annotated[int, Field(ge=1024, le=64 << 20)] = 10 << 20
    """Largest image file in bytes. A record with a larger one is bad."""
    max_pixels: Annotated[int, Field(ge=1024, le=16_777_216)] | None = None
    """Most pixels of an image as the model sees it; images with more are scaled down. A token
    stands for 28 x 28 pixels in Qwen2.5-VL and for 32 x 32 in Qwen3-VL. At most what the model's
    image processor allows. Unset: 1003520, or that limit if it is smaller."""
    min_pixels: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Fewest pixels of an image as the model sees it; images with fewer are scaled up. At least
    what the model's image processor allows. Unset: that limit."""


class StoredRollouts(Model):
    """Rollouts of an earlier run, which objective Offline trains in place of new ones."""

    run_id: Annotated[str, Field(pattern=rf"^{RUN_ID}$", max_length=63)]
    """The earlier run (its job's status.runId), in the stores of this job. Its trainer must have
    ended, and it must have the policy's tokens. Only groups that it trained, or sampled under
    objective Sampling, are read."""

    @property
    def name(self) -> str:
        """Name in metrics and status, as a source's."""
        return "rollouts"

    @property
    def uri(self) -> str:
        """Where the groups come from, as a source's."""
        return f"run {self.run_id}"

    @property
    def weight(self) -> float:
        """There is no other source."""
        return 1.0


class Data(Model):
    """Training, validation and test data, and how they are read."""

    train: (
        Annotated[list[TrainSource], Field(min_length=1, max_length=16, json_schema_extra=BY_NAME)]
        | None
    ) = None
    """Sources of training records, mixed by their weights. Required unless algorithm.objective is
    Evaluation or Offline."""
    rollouts: StoredRollouts | None = None
    """Stored rollouts that are trained in place of new ones. Required under algorithm.objective
    Offline, refused under any other."""
    validation: Annotated[list[DatasetSource], Field(max_length=8, json_schema_extra=BY_NAME)] = (
        Field(default_factory=list)
    )
    """Sources sampled by training.evaluation before, during and after training; each gets a result
    of its own."""
    test: Annotated[list[DatasetSource], Field(max_length=8, json_schema_extra=BY_NAME)] = Field(
        default_factory=list
    )
    """Sources sampled once, by the last policy."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seed of the order of records. Unset: training.seed."""
    shuffle: bool = True
    """Whether each pass over the data has a new random order. false: the order of the files."""
    on_bad_record: Literal["Fail", "Skip"] = "Fail"
    """What happens to a record or a stored group of rollouts that cannot be read, or that cannot be
    trained under SFT or Offline. `Fail`: the attempt fails and names it. `Skip`: it is left out.
    status.datasets counts those that cannot be read; drops of steps count the others."""
    hub: Hub = Field(default_factory=Hub)
    images: Images | None = None
    """Images in messages of records and in results of MCP servers' tools, for a vision-language
    model. Unset: records with images are bad, and images of tools are left out."""

    @property
    def by_split(self) -> dict[Split, Sequence[DatasetSource]]:
        """All sources, by the list that they are in."""
        return {"train": self.train or [], "validation": self.validation, "test": self.test}

    @property
    def by_field(self) -> dict[str, DatasetSource]:
        """All sources, by their place in the manifest, e.g. ``spec.data.train[0]``."""
        return {
            f"spec.data.{split}[{index}]": source
            for split, sources in self.by_split.items()
            for index, source in enumerate(sources)
        }


def uses_hub(data: Data) -> bool:
    """Whether any source comes from the hub."""
    return any(source.uri.startswith(HUB_SCHEME) for source in data.by_field.values())


def model_of_hub(model: ModelSource) -> bool:
    """Whether the model or its tokenizer comes from the hub."""
    return any(uri.startswith(HUB_SCHEME) for uri in (model.uri, model.tokenizer_uri or ""))
