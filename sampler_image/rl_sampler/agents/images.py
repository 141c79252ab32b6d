"""Images in messages in the form that chat templates take, and where they are among tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import ContentPart, ImagePart, Part, chat_part
from rl_contracts.images.placeholders import Placeholders

Shown = Mapping[str, Any]
"""A message in the form that chat templates take."""


def content_of(text: str, images: Sequence[ImagePart]) -> object:
    """The content of a message with images behind a text; a text alone where there are none."""
    if not images:
        return text
    texts: list[Part] = [ContentPart(text=text)] if text else []
    return [chat_part(part) for part in (*texts, *images)]


def text_of(message: Shown) -> str:
    """The text of a message."""
    content = message["content"]
    if not isinstance(content, list):
        return str(content)
    return "".join(str(part.get("text", "")) for part in content)


def images_in(messages: Iterable[Shown]) -> list[ImagePart]:
    """The stored images of messages, in their order."""
    return [
        ImagePart(sha256=part["image"], width=part["width"], height=part["height"])
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part["type"] == "image"
    ]


def placed(
    tokens: Sequence[int],
    images: Sequence[ImagePart],
    placeholders: Placeholders | None,
    *,
    start: int = 0,
) -> list[ImageSpan]:
    """Where images are among tokens that show them and no other placeholders.

    Args:
        tokens: as many for each image as stand for it.
        images: in their order.
        placeholders: of the model; None where there are no images.
        start: where the tokens are in their sequence.
    """
    if placeholders is None or not images:
        return []
    return list(placeholders.spans(tokens, bytes(len(tokens)), images, start=start))
