from __future__ import annotations

import asyncio
import json
import threading
from typing import cast

import pytest

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import ContentPart, ImagePart, Message
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.stores.files.images import ImageStore
from rl_sampler.agents import with_instructions
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.continuation import TemplateRefusedError
from rl_sampler.agents.images import content_of, placed
from rl_sampler.agents.prompt import PromptError, Prompts, load_prompts
from rl_sampler.agents.trace import Trace
from rl_sampler.engine.images import ImageFiles
from rl_sampler.engine.protocol import GenerateRequest
from tests.models.tiny_vision import (
    ASSISTANT,
    END,
    IMAGE,
    START,
    STOP,
    TOOL,
    USER,
    seeing_config,
    tokenizer,
)
from tests.waiting import HUNG_SECONDS

SIDE = 28
FIRST = ImagePart(sha256="aa" * 32, width=3 * SIDE, height=SIDE)
SECOND = ImagePart(sha256="bb" * 32, width=SIDE, height=2 * SIDE)
MESSAGE = Message(role="user", content=(FIRST, ContentPart(text="12"), SECOND))
RESULT = {"role": "tool", "content": content_of("7", [SECOND])}
PROMPT = [USER, START, *[IMAGE] * 3, STOP, 1, 2, START, *[IMAGE] * 2, STOP, END, ASSISTANT]
SHORT = [USER, START, IMAGE, STOP, 1, 2, START, IMAGE, STOP, END, ASSISTANT]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    folder = tmp_path_factory.mktemp("seeing")
    tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(seeing_config("qwen2_5_vl").to_dict()))
    return load_prompts(folder)


def of_prompt(prompts: Prompts) -> list[ImageSpan]:
    assert prompts.placeholders == Placeholders(token=IMAGE, side=SIDE)
    return placed(PROMPT, [FIRST, SECOND], prompts.placeholders)


def test_a_prompt_has_a_token_for_each_part_of_an_image(prompts: Prompts) -> None:
    assert prompts.encode([MESSAGE]) == PROMPT


@pytest.mark.parametrize(("members", "data"), [(1, ["a", "b"]), (2, [["a", "b"]])])
def test_the_engine_is_given_one_placeholder_for_each_image(
    prompts: Prompts, members: int, data: object
) -> None:
    collapsed = Placeholders.collapsed([*PROMPT, 4, END], of_prompt(prompts))
    assert collapsed == [*SHORT, 4, END]
    request = GenerateRequest(
        prompt=SHORT,
        members=members,
        temperature=1.0,
        max_new_tokens=4,
        stop_tokens=(END,),
        images=("a", "b"),
        prompt_tokens=len(PROMPT),
    )
    assert request.to_json()["image_data"] == data


def test_a_placeholder_in_a_text_is_refused(prompts: Prompts) -> None:
    written = Message(role="user", content=(FIRST, ContentPart(text="<|image_pad|>")))
    with pytest.raises(PromptError, match="have 2 placeholders of images, and there are 1 images"):
        prompts.encode([written])


def test_images_are_where_each_sequence_of_a_trace_shows_them(prompts: Prompts) -> None:
    trace = Trace()
    trace.restart(PROMPT, of_prompt(prompts))
    trace.tokens += [4, IMAGE, END]
    trace.mask += b"\1\1\1"
    trace.logprobs += [-1.0] * 3
    shown = Chat(prompts, []).between([RESULT], response=[END])
    trace.show(shown, placed(shown, [SECOND], prompts.placeholders))
    first = trace.shown_images
    trace.restart(PROMPT, of_prompt(prompts))
    behind, again = len(PROMPT) + 3, len(PROMPT) + 3 + len(shown)
    assert [(span.sha256[:2], span.start, span.end) for span in trace.images] == [
        ("aa", 2, 5),
        ("bb", 9, 11),
        ("bb", behind + 3, behind + 5),
        ("aa", again + 2, again + 5),
        ("bb", again + 9, again + 11),
    ]
    assert first == trace.images[:3]
    assert trace.shown_images == of_prompt(prompts), "counted from where the sequence begins"


def test_instructions_leave_images_where_they_are(prompts: Prompts) -> None:
    (message,) = with_instructions([MESSAGE], "33")
    assert message.images == [FIRST, SECOND]
    assert message.text == "33\n\n12"


def test_a_message_between_responses_shows_its_images_behind_its_text(prompts: Prompts) -> None:
    chat = Chat(prompts, [])
    assert chat.between([{"role": "user", "content": "5"}], response=[END]) == [
        USER,
        5,
        END,
        ASSISTANT,
    ]
    image = [START, *[IMAGE] * 2, STOP]
    assert chat.between([RESULT], response=[END]) == [TOOL, 7, *image, END, ASSISTANT]


def test_a_template_that_leaves_images_of_tools_out_is_refused() -> None:
    blind = tokenizer()
    blind.chat_template = (
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}<end>{% endfor %}"
    )
    placeholders = Placeholders(token=IMAGE, side=SIDE)
    prompts = Prompts(blind, vocabulary=32, stop_tokens=(END,), placeholders=placeholders)
    with pytest.raises(TemplateRefusedError, match="does not show each image of a message of role"):
        Chat(prompts, []).between([RESULT], response=[END])


def test_a_model_without_vision_refuses_a_prompt_with_images() -> None:
    plain = Prompts(tokenizer(), vocabulary=32, stop_tokens=(END,))
    with pytest.raises(PromptError, match="the model sees none"):
        plain.encode([MESSAGE])


class Store:
    """Gives each image once both threads have asked for it."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)
        self.read: list[str] = []

    def get(self, sha256: str) -> bytes:
        self.read.append(sha256)
        if self.read.count(FIRST.sha256) <= 2 and sha256 == FIRST.sha256:
            self.both.wait(timeout=HUNG_SECONDS)
        return b"ab"


async def test_an_image_that_two_threads_read_is_counted_once() -> None:
    store, size = Store(), len("data:image/png;base64,") + 4
    images, files = ImageFiles(kept_bytes=2 * size), cast(ImageStore, store)
    first, second, third = FIRST.sha256, SECOND.sha256, "cc" * 32
    reading = (asyncio.to_thread(images.of, files, [first]) for _ in range(2))
    assert len(set(await asyncio.gather(*reading))) == 1
    images.of(files, [second])
    images.of(files, [first, second])
    assert store.read == [first, first, second], "both are kept"
    images.of(files, [third, first])
    assert len(store.read) == 5, "the first one gave its place to the third"
