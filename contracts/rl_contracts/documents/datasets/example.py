"""An example: a parsed record of a dataset."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rl_contracts.documents.harbor import HarborTask
from rl_contracts.documents.task import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A parsed record of a dataset."""

    id: str
    """Id, unique within its source."""
    messages: tuple[Message, ...]
    """The conversation so far; ends with a user's turn."""
    answer: str
    """The reference answer; empty: there is none, and nothing compares with it."""
    scorer: str = ""
    """Scorer of this record; empty: the manifest's scorers."""
    answer_schema: str = ""
    """Answer schema of this record; empty: the manifest's."""
    scenario: tuple[str, ...] = ()
    """The user's further turns, or the goal of the simulated user."""
    fields: str = ""
    """Fields of the record for the user's code, as a JSON object; empty: none."""
    harbor: HarborTask | None = None
    """What its pod needs, where it is a Harbor task."""

    @property
    def text_bytes(self) -> int:
        """Bytes of its texts in UTF-8 and JSON, as the user's code gets them, without images."""
        texts = (*(each.text for each in self.messages), self.answer, *self.scenario, self.fields)
        return sum(len(json.dumps(text, ensure_ascii=False)[1:-1].encode()) for text in texts)
