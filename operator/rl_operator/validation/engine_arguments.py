"""Arguments of SGLang's server that a manifest may not set, however they are written.

SGLang reads its command line with argparse, which takes ``--name value``, ``--name=value`` and any
beginning of a name that fits one option only. Which beginnings are unique depends on SGLang's
version, so every beginning of a refused name is refused. No other option of SGLang is a beginning
of a refused one, which a test shows for the options of the installed version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_contracts.errors import Refusal
from rl_operator.render.samplers import engine, lora

QUANTIZING = (
    "--quantization",
    "--quantize-and-serve",
    "--rl-quant-profile",
    "--torchao-config",
    "--modelopt-quant",
    "--modelopt-checkpoint-restore-path",
    "--modelopt-checkpoint-save-path",
    "--modelopt-export-path",
)
"""They change the type of the weights that are served."""
OF_THE_OPERATOR = (
    *engine.ARGUMENTS,
    engine.ROUTING,
    "--model",
    *lora.ARGUMENTS,
    "--no-lora-strict-loading",
    "--api-key",
    "--admin-api-key",
    "--help",
)
"""The operator sets them, or they would replace what it sets."""
BREAKING = {
    "The engine must serve the staged model, as it is.": (
        "--load-format",
        "--custom-weight-loader",
        "--model-loader-extra-config",
        "--json-model-override-args",
        "--model-impl",
        "--revision",
        "--tokenizer-path",
        "--skip-tokenizer-init",
        "--download-dir",
        "--delete-ckpt-after-loading",
        "--decrypted-config-file",
        "--decrypted-draft-config-file",
        "--is-embedding",
        "--encoder-only",
        "--language-only",
        "--checkpoint-engine-wait-weights-before-ready",
        "--remote-instance-weight-loader-seed-instance-ip",
        "--remote-instance-weight-loader-seed-instance-service-port",
        "--remote-instance-weight-loader-send-weights-group-ports",
        "--remote-instance-weight-loader-backend",
        "--remote-instance-weight-loader-start-seed-via-transfer-engine",
    ),
    "It runs code of a model, of a request or of a file, in the container of the engine.": (
        "--trust-remote-code",
        "--enable-custom-logit-processor",
        "--forward-hooks",
        "--trust-request-chat-template",
    ),
    "A draft model would get the weights of each policy, too, for SGLang loads them into both; "
    "engine.speculation guesses without one.": (
        "--speculative-algorithm",
        "--speculative-draft-model-path",
        "--speculative-draft-model",
    ),
    "It changes the tokens that the engine samples, but not their log-probabilities.": (
        "--speculative-accept-threshold-single",
        "--speculative-accept-threshold-acc",
        "--enable-watermark",
        "--watermark-config",
        "--preferred-sampling-params",
    ),
    "The agent speaks plain HTTP with the engine, on the pod's loopback interface only.": (
        "--ssl-keyfile",
        "--ssl-certfile",
        "--ssl-ca-certs",
        "--ssl-keyfile-password",
        "--enable-ssl-refresh",
        "--fastapi-root-path",
        "--grpc-mode",
        "--smg-grpc-mode",
        "--enable-http2",
    ),
    "An engine is one container of one pod.": (
        "--nnodes",
        "--node-rank",
        "--dist-init-addr",
        "--nccl-init-addr",
        "--use-ray",
        "--disaggregation-mode",
    ),
}
"""Why they break what the agent expects, and their names."""
CACHE_DTYPE = "--kv-cache-dtype"
PLAIN_CACHE = ("auto", "bf16", "bfloat16")


def refusals(at: str, arguments: Sequence[str], *, corrected: bool) -> Iterator[Refusal]:
    """Refused arguments.

    Args:
        at: path of their list.
        arguments: after those that the operator sets.
        corrected: the loss weights each token by the trainer's probability over the sampler's.
    """
    if not corrected:
        yield from _of_cache(at, arguments)
    for index, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        where, value = f"{at}[{index}]", argument[:200]
        if argument.startswith("-h") or (name.startswith("--") and _means(name, OF_THE_OPERATOR)):
            yield Refusal(
                field=where,
                value=value,
                reason="ArgumentReserved",
                message="The operator sets this argument of the engine itself.",
                remedy="Remove it; --dtype and LoRA follow spec.training.",
            )
        elif name.startswith("--") and _means(name, QUANTIZING):
            yield Refusal(
                field=where,
                value=value,
                reason="EngineQuantized",
                message="Published weights have the type of spec.training.precision; that an "
                "engine that quantizes them takes them up rightly is proven for "
                "engine.weightPrecision FP8 alone.",
                remedy="Remove it, with its value: the engine then serves that type; or set "
                "engine.weightPrecision.",
            )
        elif name.startswith("--"):
            yield from _breaking(where, name, value)


def _of_cache(at: str, arguments: Sequence[str]) -> Iterator[Refusal]:
    for index, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if len(name) > len("--kv-c") and CACHE_DTYPE.startswith(name):
            value = value if given else "".join(arguments[index + 1 : index + 2])
            if value not in PLAIN_CACHE:
                yield Refusal(
                    field=f"{at}[{index}]",
                    value=f"{argument} {value}"[:200],
                    reason="EngineQuantized",
                    message="With a quantized cache the sampler's probabilities are not those of "
                    "the policy that is trained.",
                    remedy="Remove it, or set spec.algorithm.offPolicy.correction.kind to TIS, "
                    "IcePop or MIS in a job with samplers of its own.",
                )


def _breaking(where: str, name: str, value: str) -> Iterator[Refusal]:
    for message, names in BREAKING.items():
        if _means(name, names):
            yield Refusal(
                field=where,
                value=value,
                reason="ArgumentReserved",
                message=message,
                remedy="Remove it, with its value.",
            )
            return


def _means(name: str, refused: Sequence[str]) -> bool:
    """Whether argparse could take ``name`` for one of the refused names."""
    return any(each.startswith(name) for each in refused)
