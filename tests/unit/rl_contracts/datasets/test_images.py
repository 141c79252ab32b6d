from __future__ import annotations

import re
from typing import Any

import pytest

from rl_contracts.documents.datasets.records import BadRecordError, parse_record
from rl_contracts.documents.task import ImagePart, Message
from rl_contracts.spec.data import Columns, Images

COLUMNS = Columns(messages="chat")
LIMITS = Images(max_bytes=1024)


def parsed(part: dict[str, Any], images: Images | None = LIMITS, role: str = "user") -> Message:
    chat = [
        {"role": role, "content": [part]},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
    ]
    example = parse_record({"chat": chat}, columns=COLUMNS, place="line 1", images=images)
    return example.messages[0]


@pytest.mark.parametrize(
    "source",
    [
        "s3://photos/cats/1.png",
        "s3://photos/cats/p?size=2#1.png",
        "s3://Old_Photos/p.png",
        "https://example.com/cat.jpg?size=2",
        "data:image/png;base64,AAAA",
        "photos/cat.webp",
    ],
)
@pytest.mark.parametrize("form", ["image", "image_url"])
def test_an_image_part_is_read_in_both_forms(source: str, form: str) -> None:
    part = {"type": form, form: {"url": source} if form == "image_url" else source}
    assert parsed(part).images == [ImagePart(source=source)]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("http://example.com/a.png", "has the scheme http"),
        ("file:///etc/passwd", "has the scheme file"),
        ("/etc/passwd", "is a path that leaves the folder"),
        ("a/../../b.png", "is a path that leaves the folder"),
        ("s3://bucket", "names no object"),
        ("s3://bucket//", "names no object"),
        ("s3://[bucket/p.png", "names no object"),
        ("s3://a b/p.png", "names no object"),
        ("s3://bucket/a/../p.png", "has . or .. in its key"),
        ("https://169.254.169.254/latest", "leads to 169.254.169.254"),
        ("https://localhost/a.png", "leads to localhost"),
        ("https://10.0.0.7/a.png", "leads to 10.0.0.7"),
        ("https://minio.storage.svc/a.png", "leads to minio.storage.svc"),
        ("data:text/html;base64,AAAA", "is a data URI, but not"),
        (
            "data:image/png;base64," + "A" * 2000,
            "has 1500 bytes, more than spec.data.images.maxBytes",
        ),
        ("x" * 3000, "is an address of 3000 characters"),
    ],
)
def test_an_address_that_is_never_read_is_refused_with_its_field(source: str, why: str) -> None:
    field = re.escape("chat[0].content[0].image")
    with pytest.raises(BadRecordError, match=rf"field '{field}' {re.escape(why)}"):
        parsed({"type": "image", "image": source})


def test_images_are_refused_where_the_manifest_does_not_ask_for_them() -> None:
    with pytest.raises(BadRecordError, match=r"set spec\.data\.images"):
        parsed({"type": "image", "image": "a.png"}, images=None)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_images_of_other_roles_are_refused(role: str) -> None:
    with pytest.raises(BadRecordError, match=f"role {role} cannot show one"):
        parsed({"type": "image", "image": "a.png"}, role=role)


def test_a_message_with_an_image_keeps_its_parts_for_the_template() -> None:
    stored = ImagePart(sha256="ab", width=28, height=28)
    message = Message.model_validate({"role": "user", "content": "What is it?"})
    shown = Message(role="user", content=(stored, *message.content))
    assert message.chat == {"role": "user", "content": "What is it?"}
    assert shown.chat["content"] == [
        {"type": "image", "image": "ab", "width": 28, "height": 28},
        {"type": "text", "text": "What is it?"},
    ]
    assert Message.model_validate(shown.model_dump()) == shown
    assert shown.text == "What is it?"
