"""How a model is trained, as far as memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rl_contracts.capacity.activations import FULL, Numbers
from rl_contracts.capacity.shape import Shape
from rl_contracts.spec.parallelism import ONE_PROCESS, MeshSizes
from rl_contracts.spec.training.training import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a model is trained."""

    precision: Precision = "BF16"
    optimizer: str = "AdamW"
    adapter_rank: int = 0
    """Rank of LoRA on the linear layers that ``targets`` names; 0: all weights are trained."""
    targets: tuple[str, ...] = ()
    """Names of the layers with adapters; empty: all seven."""
    adapt_experts: bool = False
    """Each expert has adapters of its own, of its three matrices; whole models are published."""
    quantization: str | None = None
    checkpointing: bool = True
    offload_activations: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    offload_reference: bool = False
    reference: bool = False
    """A frozen copy in float32 lies beside the policy."""
    reference_shape: Shape | None = None
    """Of a reference that is another model than the policy; None: it has the policy's shape."""
    critic: bool = False
    """A value model is trained beside the policy."""
    critic_shape: Shape | None = None
    """Of a critic that starts from another model than the policy; None: as the policy."""
    critic_tokens: int | None = None
    """Most tokens of a critic's microbatch; None: as of the policy's."""
    uncounted: tuple[str, ...] = ()
    """Fields that name models whose sizes are not known: they are left out of all sums."""
    full_divergence: bool = False
    """Whole distributions of the policy and of a model that is counted are compared."""
    distributions: int = 0
    """How many of two statistics of whole distributions are trained: entropies, divergences."""
    microbatch_tokens: int
    """Most tokens of a microbatch."""
    train_vision: bool = False
    """The vision tower is trained, too; otherwise it is frozen."""
    longest_tokens: int
    """Of the longest sequence, at most those of a microbatch."""
    mesh: MeshSizes = ONE_PROCESS
    """The processes that train, and how they divide the model."""
    replicas_field: str = "trainer.replicas"
    """Field of the manifest that says how many pods there are at least."""
    cuda: bool = True
    """The device is a GPU; False: the host's memory, without CUDA's own."""
    turns: bool = False
    """An engine uses the GPU by turns with the trainer, and keeps some memory."""

    @property
    def sharded(self) -> bool:
        """Parameters lie in parts and are gathered layer by layer."""
        return self.mesh.processes > 1 or self.offload_parameters

    @property
    def reference_in_passes(self) -> bool:
        """The reference runs within the policy's passes; otherwise before the first of them."""
        return self.reference and self.compares_states

    @property
    def compares_states(self) -> bool:
        """States of another model, or of this one without adapters, lie beside the policy's."""
        return self.full_divergence or self.reference_shape is not None

    @property
    def rank_tokens(self) -> int:
        """Tokens of a microbatch whose activations one process keeps."""
        return -(-self.microbatch_tokens // self.mesh.cp)

    @property
    def of_critic(self) -> Setup:
        """The same for a critic: all of its weights are trained, in microbatches of its own."""
        return replace(
            self,
            adapter_rank=0,
            targets=(),
            adapt_experts=False,
            quantization=None,
            microbatch_tokens=self.critic_tokens or self.microbatch_tokens,
        )

    @property
    def numbers(self) -> Numbers:
        """Bytes of numbers in the layers."""
        compute = FULL if self.precision == "FP32" else 2
        frozen = self.adapter_rank > 0
        return Numbers(
            compute=compute,
            residual=compute if frozen else FULL,
            frozen=frozen,
            adapter_rank=self.adapter_rank,
            targets=self.targets,
            adapted_experts=self.adapt_experts,
        )
