"""The tokenizer of the example's model: bytes, special tokens, and whole actions as tokens."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
IMAGE = "<|image_pad|>"
SEEING = ("<|vision_start|>", IMAGE, "<|vision_end|>", "<|video_pad|>")
OPEN = '<tool_call>\n{"name": "open", "arguments": {"page": '
CLICK = '<tool_call>\n{"name": "click", "arguments": {"x": '
COMMA = ', "y": '
CLOSE = "}}\n</tool_call>"
DONE = '<tool_call>\n{"name": "done", "arguments": {}}\n</tool_call>'
ACTIONS = (OPEN, CLICK, COMMA, CLOSE, DONE)
"""What a small model would have to spell byte by byte: calls in Hermes' form, but for numbers."""

TEMPLATE = """\
{%- for message in messages -%}
{{- '<|' ~ message.role ~ '|>' -}}
{%- if message.content is string -%}{{- message.content -}}{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def tokenizer() -> PreTrainedTokenizerFast:
    """Builds it; ids 0-255 are the bytes in the order of the ByteLevel alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    special = (PAD, END, *ROLES, *SEEING)
    core.add_special_tokens([AddedToken(text, special=True) for text in special])
    core.add_tokens([AddedToken(text, normalized=False) for text in ACTIONS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
