"""The model and the data that the manifest names, or the refusal that names the field."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformers import AutoTokenizer

from rl_contracts.documents.dataset import Example, parse_jsonl
from rl_contracts.errors import AccessDeniedError, ObjectMissingError, Refusal, RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.sections import DatasetSource
from rl_contracts.stores.objects import Objects, split_uri
from rl_trainer import model
from rl_trainer.groups import Limits
from rl_trainer.model import UNLOADABLE, Policy

LOADED_SUFFIXES = {".json", ".jinja", ".model", ".safetensors", ".txt"}
"""Config, tokenizer and weights; pickled weights and code are left where they are."""


def fetch_model(objects: Objects, spec: RLJobSpec, folder: Path) -> None:
    """Download the model's folder.

    Raises:
        RefusedError: there is none, its config, tokenizer, chat template or weights are missing,
            or the keys do not permit reading it.
    """
    uri = spec.model.uri
    bucket_name, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    bucket = objects.of_bucket(bucket_name)
    with _refusing("spec.model.uri", uri, missing="ModelNotFound"):
        found = [one.key for one in bucket.list(prefix)]
        names = [key.removeprefix(prefix) for key in found]
        if not names:
            raise ObjectMissingError(uri)
        for name in names:
            if "/" not in name and Path(name).suffix in LOADED_SUFFIXES:
                bucket.get_file(prefix + name, folder / name)
    if not (folder / "config.json").is_file():
        raise model.refused(uri, "It holds no config.json.")
    if not any(folder.glob("*.safetensors")):
        raise model.refused(uri, "It holds no safetensors file.")
    _check_tokenizer(folder, uri)


def _check_tokenizer(folder: Path, uri: str) -> None:
    """The samplers need it, and only the trainer can end the run with a refusal."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except UNLOADABLE as error:
        raise model.refused(uri, f"Its tokenizer cannot be loaded: {error}"[:400] + ".") from error
    if not tokenizer.chat_template:
        raise model.refused(uri, "Its tokenizer has no chat template.")


def fetch_examples(objects: Objects, source: DatasetSource, *, field: str) -> list[Example]:
    """Download and parse a dataset; ``field`` is its path in the manifest.

    Raises:
        RefusedError: it is missing, forbidden, empty, or a line is malformed (which one).
    """
    bucket, key = split_uri(source.uri)
    with _refusing(f"{field}.uri", source.uri, missing="DatasetNotFound"):
        content = objects.of_bucket(bucket).get(key)
    return list(parse_jsonl(content.splitlines(), source=source, field=field))


def limits(policy: Policy, spec: RLJobSpec) -> Limits:
    """What a rollout must fit.

    Raises:
        RefusedError: the longest sequence that samplers may produce fits no microbatch.
    """
    budget = spec.training.max_tokens_per_microbatch
    longest = spec.agent.sampling.max_context_tokens
    if policy.max_positions is not None:
        longest = min(longest, policy.max_positions)
    if longest > budget:
        raise RefusedError(
            Refusal(
                field="spec.training.maxTokensPerMicrobatch",
                value=str(budget),
                reason="MicrobatchTooSmall",
                message=f"Sequences may have {longest} tokens, which fit no microbatch.",
                remedy=f"Set it to at least {longest}, or lower "
                "spec.agent.sampling.maxContextTokens.",
            )
        )
    return Limits(vocabulary=policy.vocabulary, max_tokens=longest)


def datasets(objects: Objects, spec: RLJobSpec) -> tuple[list[Example], list[Example]]:
    """Training and validation examples; no validation examples where the manifest has none."""
    train = _all(objects, spec.data.train, "spec.data.train")
    return train, _all(objects, spec.data.validation, "spec.data.validation")


def _all(objects: Objects, sources: Sequence[DatasetSource], field: str) -> list[Example]:
    fetched = (
        fetch_examples(objects, source, field=f"{field}[{number}]")
        for number, source in enumerate(sources)
    )
    return [example for examples in fetched for example in examples]


@contextlib.contextmanager
def _refusing(field: str, uri: str, *, missing: str) -> Iterator[None]:
    try:
        yield
    except ObjectMissingError as error:
        raise RefusedError(
            Refusal(
                field=field,
                value=uri[:200],
                reason=missing,
                message=f"{error}.",
                remedy="Upload it, or correct the URI.",
            )
        ) from error
    except AccessDeniedError as error:
        raise RefusedError(
            Refusal(
                field=field,
                value=uri[:200],
                reason="AccessDenied",
                message=f"{error}.",
                remedy="Let the keys in the stores' Secret read it.",
            )
        ) from error
