"""Jobs whose agent is a program, and what holds for their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from tests.contract.rl_sampler.episodes.several_turns import with_tools
from tests.contract.rl_sampler.rescoring import logprobs
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer

PROGRAMS = Path(__file__).parent / "programs"


def program_job(
    trainer: ScriptedTrainer, model: Path, command: list[str], **options: Any
) -> dict[str, Any]:
    """Sections of a job whose members a program acts out, in a pod of its own by default."""
    sections = with_tools(trainer, model)
    program = {"command": command, "onFailure": "InfrastructureError"}
    sections["agent"] = {
        "kind": "Program",
        "program": program | options,
        "sampling": sections["agent"]["sampling"],
    }
    sections["reward"] = {"scorers": [{"kind": "Program"}]}
    return sections


def check_tokens(rollout: Rollout) -> None:
    """Every sampled token is data once, with its version; nothing else is."""
    assert len(rollout.mask) == rollout.num_tokens == len(rollout.logprobs) // 4
    responses = [
        at for turn in rollout.turns for at in range(turn.response.start, turn.response.end)
    ]
    assert responses == [at for at, bit in enumerate(rollout.mask) if bit]
    covered = [at for span in rollout.spans for at in range(span.start, span.end)]
    assert covered == responses


def greatest_distance(rollout: Rollout, *, folder: Path, seeds: dict[int, int]) -> float:
    """Largest difference between log-probabilities of the engine and of transformers.

    Args:
        rollout: sampled at temperature 1, with weights of which each span names one version.
        folder: of the model's config.
        seeds: of the published versions.
    """
    tokens, engine_logprobs = (
        unpack_int32(rollout.tokens),
        np.array(unpack_float32(rollout.logprobs)),
    )
    greatest = 0.0
    for sequence in rollout.sequences:
        for span in rollout.spans:
            if not sequence.start <= span.start < sequence.end:
                continue
            context = tokens[sequence.start : sequence.end]
            wanted = logprobs(folder, seeds[span.version], context)
            first, last = span.start - sequence.start - 1, span.end - sequence.start - 1
            gaps = np.abs(engine_logprobs[span.start : span.end] - wanted[first:last])
            greatest = max(greatest, float(gaps.max()))
    return greatest
