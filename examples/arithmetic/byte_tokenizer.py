"""The byte-level tokenizer of the demo's model: 256 bytes and eight added tokens, no merges."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
# Content rather than control: decoding with skip_special_tokens keeps them, so a scorer sees them.
ANSWER_TAGS = ("<answer>", "</answer>")

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}"
    "{{- raise_exception('unknown role ' ~ message.role) -}}"
    "{%- endif -%}"
    "{{- '<|' ~ message.role ~ '|>' ~ message.content ~ '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def byte_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    """Builds the tokenizer; ids 0-255 are the bytes in the order of the ByteLevel alphabet.

    Args:
        max_length: the model's context, in tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in (PAD, END, *ROLES)])
    core.add_tokens([AddedToken(text, normalized=False) for text in ANSWER_TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
