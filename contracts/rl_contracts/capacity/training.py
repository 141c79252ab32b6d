"""Bytes that one training process needs of its device at the peak of a step, by part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from rl_contracts.capacity import activations, mesh
from rl_contracts.capacity.activations import FULL
from rl_contracts.capacity.other_models import TeacherPass, gathered, gathered_critic, teacher_pass
from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape

GIB = 1 << 30
CHUNK_LOGITS = 1 << 25
"""Logits that the trainer makes at a time (``rl_trainer.algorithm.logprobs``)."""
LOGIT_BYTES = 8
"""Of a logit: itself in float32, and as much again in logsumexp."""
STATISTICS_BYTES, STATISTIC_BYTES = 16, 4
"""Of a logit where entropies or divergences are wanted: log-softmax, probabilities and gradients,
and for each of the two what it multiplies with the probabilities. Measured alone on a processor:
20 bytes for one, 24 for both."""
MOMENT_BYTES = {"AdamW": 8.0, "AdamW8bit": 2.0 + 2 * 4 / 256}
"""Of a trained parameter: two moments in float32 (arXiv 1711.05101), or two bytes with a float32
scale for each block of 256 (arXiv 2110.02861)."""
QUANTIZED_BYTES = {"Int8": 1.0, "NF4": 0.5 + 4 / 64}
"""Of a frozen weight with its scales; those of Int8 are too few to count."""
CUDA_BYTES = GIB
"""Of a GPU's memory for CUDA's context and the workspaces of cuBLAS and NCCL. An assumption: no
measurement stands behind it yet."""
ENGINE_REST_BYTES = 2 * GIB
"""Of a GPU's memory that an engine keeps in the trainer's turn: CUDA's context and what SGLang's
memory saver does not give back. 1.71 GiB were measured, of a model of 0.5 B on an H200."""
SPARE_SHARE = 0.08
"""Of a GPU's memory that the caching allocator may leave in pieces. An assumption as well."""


def memory(shape: Shape, setup: Setup) -> Memory:
    """The peak of a step of several microbatches, so that all gradients are there already.

    Args:
        shape: of the policy.
        setup: how it is trained.
    """
    own, reference, critic = (
        mesh.part_of(each or shape, setup.mesh)
        for each in (shape, setup.reference_shape, setup.critic_shape)
    )
    held = _held(own, setup, reference=reference, critic=critic)
    if setup.sharded:
        held = _with_gathered(held, own, setup, reference=reference, critic=critic)
    phases = [_layers_phase(own, setup), _logits_phase(own, setup)]
    if setup.compares_states:
        tokens, compute = setup.rank_tokens, setup.numbers.compute
        beside = teacher_pass(reference, compute=compute, tokens=tokens)
        phases = [_with_states(phase, beside) for phase in phases]
    if setup.reference_in_passes:
        wider = max(0, reference.layer_parameters - own.layer_parameters)
        layers = 2.0 * FULL * wider if setup.sharded and not setup.offload_reference else 0.0
        phases.append(_teacher_phase(own, setup, beside, layers=layers))
    if setup.critic:
        phases.append(_layers_phase(critic, setup.of_critic))
    passes = max(phases, key=lambda phase: phase.passes)
    return replace(
        held,
        casts=passes.casts,
        activations=passes.activations,
        logits=passes.logits,
    )


def _held(shape: Shape, setup: Setup, *, reference: Shape, critic: Shape) -> Memory:
    """What lies there before and after each pass."""
    trained, weights = trained_parameters(shape, setup), _weights(shape, setup)
    share, frozen = partial(_share, shape, setup), setup.adapter_rank > 0
    moments = share(trained, each=MOMENT_BYTES[setup.optimizer], experts=not frozen)
    gradients = share(trained, each=FULL, experts=not frozen)
    host = update = 0.0
    each = setup.numbers.compute if frozen else FULL
    tower = _whole_tower(shape, setup)
    own = share(weights / each - tower, each=each) + tower * each
    beside = _reference(reference, setup) if setup.reference else 0.0
    valued = valued_gradients = 0.0
    if setup.critic:
        body = partial(_share, critic, setup, critic.body_parameters)
        valued, valued_gradients = (
            body(each=2 * FULL + MOMENT_BYTES[setup.optimizer]),
            body(each=FULL),
        )
    if setup.offload_parameters:
        host = own + gradients + moments + beside + valued
        own = gradients = moments = beside = valued = valued_gradients = 0.0
    elif setup.offload_optimizer:
        host, moments, update = moments, 0.0, min(moments, 8.0 * shape.table_parameters)
    moved = 0.0
    if setup.turns:  # an offloaded reference lies in host memory as it is
        moved = own + moments + valued - valued_gradients
        moved += 0.0 if setup.offload_reference else beside
    if setup.reference and setup.offload_reference:
        # While it runs, what is outside of its layers and two of these.
        host += beside
        beside = gathered(reference)
    if setup.sharded:
        own += _gathered(shape, setup)
    return Memory(
        weights=own,
        gradients=gradients,
        moments=moments,
        update=update,
        reference=beside,
        critic=valued,
        device=float(CUDA_BYTES + setup.turns * ENGINE_REST_BYTES) if setup.cuda else 0.0,
        host=host,
        moved=moved,
    )


def _with_gathered(
    held: Memory, shape: Shape, setup: Setup, *, reference: Shape, critic: Shape
) -> Memory:
    """What the other models gather beside the policy.

    A reference's tensors outside of its layers stay until the policy's update is made.
    """
    beside = valued = 0.0
    if setup.reference_in_passes and not setup.offload_reference:
        beside = float(FULL * reference.outer_parameters)
    if setup.critic:  # it is trained before the policy, whose layers are not gathered then
        valued = max(0.0, gathered_critic(critic) - _gathered(shape, setup))
    return replace(held, reference=held.reference + beside, critic=held.critic + valued)


def _whole_tower(shape: Shape, setup: Setup) -> int:
    """Parameters of a frozen vision tower, which is whole in each process."""
    return shape.vision_parameters if setup.sharded and not setup.train_vision else 0


def _reference(shape: Shape, setup: Setup) -> float:
    tower = _whole_tower(shape, setup)
    return _share(shape, setup, shape.parameters - tower, each=FULL) + tower * FULL


def _share(
    shape: Shape, setup: Setup, numbers: float, *, each: float, experts: bool = True
) -> float:
    """Bytes that one process holds of so many numbers of ``each`` bytes, divided by FSDP.

    Experts that ep divides are divided again among the processes that own the same ones.
    """
    sizes = setup.mesh
    owned = _experts(shape) if experts and sizes.ep > 1 else 0
    divided = (numbers - owned) / (sizes.fsdp * sizes.cp) + owned / sizes.experts_fsdp
    return float(divided * each)


def _experts(shape: Shape) -> int:
    """Parameters of all layers' experts, without routers and shared ones."""
    return shape.experts * 3 * shape.hidden * shape.expert_width * shape.expert_layers


def trained_parameters(shape: Shape, setup: Setup) -> int:
    """Numbers that the optimizer changes."""
    if not setup.adapter_rank:
        return shape.parameters - (0 if setup.train_vision else shape.vision_parameters)
    linear = (
        setup.adapter_rank
        * shape.layers
        * sum(rows + columns for rows, columns in adapted(shape, setup.targets))
    )
    return linear + shape.expert_layers * _expert_adapters(shape, setup)


def adapted(shape: Shape, targets: Collection[str]) -> list[tuple[int, int]]:
    """Rows and columns of a layer's matrices that have adapters; empty ``targets``: all seven."""
    return [size for name, size in _linear(shape).items() if not targets or name in targets]


def _expert_adapters(shape: Shape, setup: Setup) -> int:
    """Numbers of one layer's adapters of experts, those that every token passes included."""
    if not setup.adapt_experts:
        return 0
    routed = shape.experts * (shape.hidden + shape.expert_width)
    shared = shape.hidden + shape.shared_width if shape.shared_width else 0
    return 3 * setup.adapter_rank * (routed + shared)


def _linear(shape: Shape) -> dict[str, tuple[int, int]]:
    """Sizes of the layers that adapters may have, without experts."""
    key_value = shape.key_value_heads * shape.head_width
    sizes = {
        "q_proj": (shape.query_width, shape.hidden),
        "k_proj": (key_value, shape.hidden),
        "v_proj": (key_value, shape.hidden),
        "o_proj": (shape.hidden, shape.value_width),
    }
    if shape.expert_layers < shape.layers:
        sizes |= {
            "gate_proj": (shape.feed_forward, shape.hidden),
            "up_proj": (shape.feed_forward, shape.hidden),
            "down_proj": (shape.hidden, shape.feed_forward),
        }
    return sizes


def _weights(shape: Shape, setup: Setup) -> float:
    """Bytes of the policy's weights, adapters included."""
    if not setup.adapter_rank:
        return float(FULL * shape.parameters)
    frozen, adapters = float(setup.numbers.compute), float(FULL * trained_parameters(shape, setup))
    if setup.quantization is None:
        return frozen * shape.parameters + adapters
    linear = shape.layers * sum(rows * columns for rows, columns in _linear(shape).values())
    small = QUANTIZED_BYTES[setup.quantization] * linear
    return small + frozen * (shape.parameters - linear) + adapters


def _gathered(shape: Shape, setup: Setup) -> float:
    """Whole layers of a divided model: what is outside of them stays, two are there at a time."""
    each = setup.numbers.compute if setup.adapter_rank else FULL
    gradients = 0 if setup.adapter_rank else FULL
    outer = shape.outer_parameters * (each + gradients)
    layers = 2 * shape.layer_parameters * (each + gradients)
    return float(outer + layers + 2 * _expert_adapters(shape, setup) * 2 * FULL)


def _kept(shape: Shape, setup: Setup) -> float:
    """Activations at the end of the layers' forward pass."""
    tokens, numbers = setup.rank_tokens, setup.numbers
    # Last norm, the states of generated tokens, their gradient.
    outer: float = 3 * shape.hidden * FULL
    outer += activations.of_vision(shape.vision, numbers, setup.checkpointing, setup.train_vision)
    if setup.checkpointing:
        between = activations.between_layers(shape, numbers) * shape.layers
        return tokens * (outer + (0 if setup.offload_activations else between))
    dense = shape.layers - shape.expert_layers
    each = dense * activations.layer(shape, numbers, mixture=False)
    each += shape.expert_layers * activations.layer(shape, numbers, mixture=True)
    return tokens * (outer + each)


def _casts(shape: Shape, setup: Setup, *, parameters: int) -> float:
    cast = setup.numbers.casts and not setup.adapter_rank
    return float(parameters * setup.numbers.compute) if cast else 0.0


def _kept_casts(shape: Shape, setup: Setup) -> float:
    """Copies that the layers' forward pass leaves for the backward pass."""
    return 0.0 if setup.checkpointing else _casts(shape, setup, parameters=_matrices(shape))


def _matrices(shape: Shape) -> int:
    """Parameters that autocast copies: those of linear layers, but not of experts or the head."""
    return shape.parameters - shape.outer_parameters - _experts(shape)


def _layers_phase(shape: Shape, setup: Setup) -> Memory:
    """The moment at which the layers' backward pass begins."""
    numbers, tokens = setup.numbers, setup.rank_tokens
    mixture = shape.expert_layers > 0
    running = activations.backward(shape, numbers, mixture=mixture)
    again = 0.0
    if setup.checkpointing:
        again = activations.layer(shape, numbers, mixture=mixture)
    matrices = _matrices(shape) // (shape.layers if setup.checkpointing else 1)
    widest = 0 if setup.adapter_rank else _widest(shape) * FULL
    whole = 0.0
    if setup.quantization is not None:
        whole = float(shape.feed_forward * shape.hidden * numbers.compute)
    # Of the experts' adapters a layer makes copies in the type of the pass.
    whole += _expert_adapters(shape, setup) * numbers.compute
    return Memory(
        weights=0.0,
        gradients=0.0,
        moments=0.0,
        casts=_casts(shape, setup, parameters=matrices) + widest + whole,
        activations=_kept(shape, setup) + tokens * (running + again),
    )


def _widest(shape: Shape) -> int:
    """Parameters of a layer's largest tensor."""
    dense = shape.hidden * shape.feed_forward
    return max(dense, shape.experts * 2 * shape.hidden * shape.expert_width)


def _with_states(phase: Memory, teacher: TeacherPass) -> Memory:
    return replace(phase, activations=phase.activations + teacher.states)


def _teacher_phase(shape: Shape, setup: Setup, teacher: TeacherPass, *, layers: float) -> Memory:
    """The moment at which a teacher runs, between the layers' forward pass and the logits.

    ``layers`` are bytes of its gathered layers beyond the policy's, which are not gathered then.
    """
    return Memory(
        weights=0.0,
        gradients=0.0,
        moments=0.0,
        casts=_kept_casts(shape, setup) + teacher.casts + layers,
        activations=_kept(shape, setup) + teacher.running,
    )


def _logits_phase(shape: Shape, setup: Setup) -> Memory:
    """The moment at which logits are there, between the layers' forward and backward pass."""
    each = LOGIT_BYTES
    if setup.distributions:
        each = STATISTICS_BYTES + STATISTIC_BYTES * setup.distributions
    most = CHUNK_LOGITS // (3 if setup.distributions else 1)
    logits = min(most, setup.rank_tokens * shape.vocabulary)
    table = shape.table_parameters
    head = 0 if setup.adapter_rank else table * FULL
    head += table * 2 * setup.numbers.compute if setup.numbers.casts else 0
    return Memory(
        weights=0.0,
        gradients=0.0,
        moments=0.0,
        casts=_kept_casts(shape, setup),
        activations=_kept(shape, setup),
        logits=float(each * logits + head),
    )
