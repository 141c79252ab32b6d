from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.task import Message
from rl_trainer.model.chat_template import ChatTemplate, Encoded, UntrainableError
from tests.models.tiny_model import END, TEMPLATE, save_tiny, tiny_tokenizer

MARKED = (
    "{%- for m in messages -%}{{ '<' ~ m.role ~ '>' }}{%- if m.role == 'assistant' -%}"
    "{% generation %}{{ m.content ~ '<end>' }}{% endgeneration %}{%- else -%}"
    "{{ m.content ~ '<end>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%}"
)
TRAILED = TEMPLATE.replace("<end>'", "<end>0'")
"""A 0 behind each turn, as others have a line break there."""
FORGETFUL = TEMPLATE.replace(
    "message.content", "(message.content if loop.last or message.role == 'user' else '9')"
)
"""Earlier turns of the assistant are rendered otherwise once others follow."""
REFUSING = "{{ raise_exception('no') }}"


def messages_of(*turns: tuple[str, str]) -> list[Message]:
    return [Message.model_validate({"role": role, "content": text}) for role, text in turns]


ONE = messages_of(("user", "12"), ("assistant", "3"))
TWO = messages_of(
    ("system", "0"), ("user", "12"), ("assistant", "3"), ("user", "4"), ("assistant", "56")
)


def template(text: str) -> ChatTemplate:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.chat_template = text
    return ChatTemplate(tokenizer, stop_tokens=[END])


@pytest.mark.parametrize("text", [TEMPLATE, MARKED])
def test_only_what_the_assistant_says_and_its_end_is_trained(text: str) -> None:
    assert template(text).encode(ONE) == Encoded([13, 1, 2, 11, 14, 3, 11], [0, 0, 0, 0, 0, 1, 1])
    assert template(text).encode(TWO) == Encoded(
        [12, 0, 11, 13, 1, 2, 11, 14, 3, 11, 13, 4, 11, 14, 5, 6, 11],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1],
    )


@pytest.mark.parametrize("text", [TEMPLATE, MARKED, TRAILED])
def test_the_tokens_are_those_of_the_whole_conversation(text: str) -> None:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.chat_template = text
    chat = [{"role": message.role, "content": message.text} for message in TWO]
    whole = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)
    assert template(text).encode(TWO).tokens == whole["input_ids"]


def test_text_behind_a_turns_stop_token_is_not_trained() -> None:
    encoded = template(TRAILED).encode(ONE)
    assert encoded == Encoded([13, 1, 2, 11, 0, 14, 3, 11, 0], [0, 0, 0, 0, 0, 0, 1, 1, 0])


@pytest.mark.parametrize(
    ("text", "conversation", "why"),
    [
        (FORGETFUL, TWO, "renders earlier turns otherwise"),
        (REFUSING, ONE, "the chat template refuses it: no"),
        (
            MARKED.replace(
                "generation %}{{ m", "generation %}{{- ''}}{% endgeneration %}{{ m"
            ).replace("'<end>' }}{% endgeneration %}", "'<end>' }}"),
            ONE,
            "nothing of it was said",
        ),
    ],
)
def test_a_conversation_that_cannot_be_trained_says_why(
    text: str, conversation: list[Message], why: str
) -> None:
    with pytest.raises(UntrainableError, match=why):
        template(text).encode(conversation)


def test_a_template_that_drops_history_trains_a_single_turn() -> None:
    assert sum(template(FORGETFUL).encode(ONE).mask) == 2


def test_stop_tokens_come_from_the_models_config(tmp_path: Any) -> None:
    loaded = ChatTemplate.load(save_tiny(tmp_path))
    assert loaded.encode(ONE).mask == [0, 0, 0, 0, 0, 1, 1]


def test_the_template_gets_the_arguments_of_the_manifest() -> None:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.chat_template = "{% if short %}1{% endif %}" + TEMPLATE
    plain = ChatTemplate(tokenizer, stop_tokens=[END])
    short = ChatTemplate(tokenizer, stop_tokens=[END], arguments={"short": True})
    assert short.encode(ONE).tokens == [1, *plain.encode(ONE).tokens]
