"""The symbol that SGLang's rotary embedding binds when it is constructed, and never calls."""

from typing import NoReturn

from vllm.host_memory import without_pinning

without_pinning()


def rotary_embedding(*_arguments: object) -> NoReturn:
    """Refuse the call: on a CPU, SGLang computes with its native torch forward only.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "SGLang called vLLM's rotary_embedding, which the CPU engine image does not have; "
        "this image is made for sglang 0.5.23 with --device cpu --attention-backend torch_native"
    )
