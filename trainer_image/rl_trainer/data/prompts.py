"""Examples as what a task asks."""

from __future__ import annotations

from typing import TypedDict

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.harbor import HarborTask
from rl_contracts.documents.task import Message
from rl_trainer.data.dataset import Dataset, Split


class Asked(TypedDict):
    """The fields of a task that an example decides."""

    split: Split
    dataset: str
    example: str
    messages: list[Message]
    answer: str
    scorer: str
    answer_schema: str
    scenario: list[str]
    fields: str
    harbor: HarborTask | None


def asked(dataset: Dataset, example: Example, *, system_prompt: str) -> Asked:
    """What a task asks of an example of ``dataset``; ``system_prompt`` as for ``messages``."""
    return Asked(
        split=dataset.split,
        dataset=dataset.source.name,
        example=example.id,
        messages=messages(example, system_prompt=system_prompt),
        answer=example.answer,
        scorer=example.scorer,
        answer_schema=example.answer_schema,
        scenario=list(example.scenario),
        fields=example.fields,
        harbor=example.harbor,
    )


def messages(example: Example, *, system_prompt: str) -> list[Message]:
    """The chat that asks an example.

    Args:
        example: whose own system message, if it begins with one, comes before any other.
        system_prompt: the manifest's; empty: none.
    """
    own = example.messages[0].role in ("system", "developer")
    system = [Message(role="system", content=system_prompt)] if system_prompt and not own else []
    return [*system, *example.messages]
