"""The one symbol that SGLang's rotary embedding binds at construction."""

from typing import NoReturn

from vllm.host_memory import without_pinning

without_pinning()


def rotary_embedding(*_arguments: object) -> NoReturn:
    """Refuses: on a CPU, SGLang's native torch forward is the only path that computes.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "SGLang called vLLM's rotary_embedding, which the CPU engine image does not have; "
        "this image is made for sglang 0.5.23 with --device cpu --attention-backend torch_native"
    )
