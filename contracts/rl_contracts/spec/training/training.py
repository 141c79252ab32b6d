"""Length, batches, precision, durability and evaluation of the training."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.base import Model, S3Uri, rule, rules
from rl_contracts.spec.training.lora import LoRA
from rl_contracts.spec.training.tracking import Tracking

HubRepo = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", max_length=96)]
"""``org/name``."""


AUTO: Final = "Auto"
MOST_AUTO_TOKENS = 32_768
"""Tokens of a microbatch under ``Auto`` where memory does not limit them: more are not faster."""
MicrobatchTokens = Annotated[
    Annotated[int, Field(ge=16, le=16_777_216)] | Literal["Auto"],
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "minimum": 16,
            "maximum": 16_777_216,
            "pattern": "^[0-9]{1,8}$|^Auto$",
        }
    ),
]


class Optimizer(Model):
    """AdamW with a linear warm-up and a schedule of the learning rate."""

    model_config = rules(
        rule(
            "!has(self.minimumRatio) || self.schedule != 'Constant'",
            "optimizer.minimumRatio is for schedules Linear and Cosine, and schedule is Constant: "
            "remove it or change schedule",
            field="minimumRatio",
        )
    )
    kind: Literal["AdamW", "AdamW8bit"] = "AdamW"
    """`AdamW`: moments in 32 bits. `AdamW8bit`: moments in 8 bits, for a trainer of one process on
    a GPU."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """Learning rate after the warm-up. Usual: 1e-6 for all weights, 1e-5 to 1e-4 for LoRA."""
    schedule: Literal["Constant", "Linear", "Cosine"] = "Constant"
    """How the learning rate changes after the warm-up. `Linear` and `Cosine` go down to
    minimumRatio of it at the last step."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Steps over which the learning rate rises linearly from 0; at most training.steps."""
    minimum_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Learning rate at the last step as a share of learningRate, with schedule Linear or Cosine.
    Unset: 0."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Decoupled weight decay of AdamW."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of AdamW's moving mean of gradients."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of AdamW's moving mean of squared gradients."""
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """Number added to AdamW's denominator, for numerical stability."""
    max_gradient_norm: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Gradients of a larger global norm are scaled down to it."""


class Resume(Model):
    """Whether training goes on from what was trained before."""

    model_config = rules(
        rule(
            "has(self.uri) == (self.mode == 'From')",
            "checkpoint.resume.uri goes with mode From, and mode From needs it; mode is "
            "{self.mode}: set uri under mode From, remove it under any other",
            field="uri",
        )
    )
    mode: Literal["Auto", "Never", "From"] = "Auto"
    """`Auto`: from the run's last checkpoint, or from the model. `Never`: refuse a run that already
    has steps. `From`: begin with the checkpoint at uri."""
    uri: S3Uri | None = None
    """Folder of a checkpoint, `s3://<bucket>/<path>`. Only with mode From."""


class Checkpoint(Model):
    """When the training state and the model are saved in the bucket."""

    every_steps: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Training steps between two checkpoints; a restart repeats at most as many."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of checkpoints kept in the bucket; older ones are deleted."""
    export_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Training steps between two exports of the model in Hugging Face layout. Unset: only the final
    model is exported."""
    hub_repo: HubRepo | None = None
    """Repository `org/name` of data.hub that the final model is uploaded to as well. Needs
    data.hub.tokenSecretRef. Unset: not uploaded."""
    resume: Resume = Field(default_factory=Resume)


class Evaluation(Model):
    """How the validation data are sampled with one policy version."""

    model_config = rules(
        rule(
            "self.temperatures.all(temperature, temperature == 0.0 || temperature >= 0.01)",
            "evaluation.temperatures must each be 0 or at least 0.01: remove the others",
            field="temperatures",
        )
    )
    every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Training steps between two evaluations; needs data.validation. Unset: none during
    training."""
    before_training: bool = True
    """Whether the model is evaluated before the first step."""
    after_training: bool = True
    """Whether the last policy is evaluated."""
    temperatures: Annotated[
        list[Annotated[float, Field(ge=0, le=2.0)]], Field(min_length=1, max_length=4)
    ] = Field(default=[1.0])
    """Sampling temperatures; every prompt is sampled at each. 0 always takes the most probable
    token. Status shows the results of the first."""
    samples_per_prompt: Annotated[int, Field(ge=1, le=1024)] = 1
    """Rollouts for each prompt and temperature; the results are avg@k and pass@k over them. At
    temperature 0 there is always a single rollout."""
    timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800
    """Longest time in seconds that one evaluation may take; then the attempt fails."""


Precision = Literal["BF16", "FP16", "FP32"]


class DeviceMemory(Model):
    """What is known of the trainer's memory, and what follows if the training needs more."""

    device_gib: Annotated[float, Field(gt=0, le=4096)] | None = Field(
        default=None, alias="deviceGiB"
    )
    """Memory in GiB of each GPU, or without GPUs of each process, that the training may use. Unset:
    that of the GPU; before the start, what the nodes' label `nvidia.com/gpu.memory` says."""
    check: Literal["Refuse", "Warn"] = "Refuse"
    """What happens when weights, gradients and moments alone exceed it by formula. `Refuse`: no pod
    starts. `Warn`: the condition MemoryFits says so."""


class Training(Model):
    """Length, batches, optimizer, precision, memory, checkpoints and evaluation of the training."""

    model_config = rules(
        rule(
            "!has(self.evaluation.everySteps) || !has(self.steps) || "
            "self.evaluation.everySteps <= self.steps",
            "training.evaluation.everySteps must not exceed steps: "
            "{self.evaluation.everySteps} is more than {self.steps}",
            field="evaluation.everySteps",
        ),
        rule(
            "!has(self.steps) || self.optimizer.warmupSteps <= self.steps",
            "training.optimizer.warmupSteps must not exceed steps: {self.optimizer.warmupSteps} "
            "is more than {self.steps}",
            field="optimizer.warmupSteps",
        ),
        rule(
            "!has(self.promptsPerUpdate) || self.promptsPerStep % self.promptsPerUpdate == 0",
            "training.promptsPerUpdate must divide promptsPerStep: {self.promptsPerStep} is no "
            "multiple of {self.promptsPerUpdate}",
            field="promptsPerUpdate",
        ),
        rule(
            "!self.offloadActivations || self.?gradientCheckpointing.orValue(true)",
            "training.offloadActivations needs gradientCheckpointing: set it to true or remove it, "
            "or remove offloadActivations",
            field="offloadActivations",
        ),
        rule(
            "self.vision == 'Frozen' || !has(self.lora)",
            "training.vision Trained trains all weights of the vision tower, and lora trains "
            "adapters alone: set it to Frozen, or remove lora",
            field="vision",
        ),
        rule(
            "!self.offloadParameters || !self.offloadOptimizer",
            "training.offloadParameters keeps the moments in host memory too: remove "
            "offloadOptimizer",
            field="offloadOptimizer",
        ),
        rule(
            "!self.offloadParameters || !self.offloadReference",
            "training.offloadParameters keeps the reference in host memory too: remove "
            "offloadReference",
            field="offloadReference",
        ),
        rule(
            "!self.offloadParameters || self.optimizer.kind != 'AdamW8bit'",
            "training.optimizer.kind AdamW8bit does not go with offloadParameters: use AdamW, or "
            "remove offloadParameters",
            field="optimizer.kind",
        ),
    )
    steps: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Number of training steps. Set either this or epochs. Can be raised while the job is
    suspended; the learning rate's schedule then spans the new number."""
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Passes over the training records, which become steps once the data are read: epochs ×
    records / promptsPerStep, rounded up. What is left out at its turn, e.g. by dynamicSampling,
    does not make them fewer: the next records take its place. Set either this or steps. Can be
    raised while the job is suspended, like steps."""
    prompts_per_step: Annotated[int, Field(ge=1, le=65536)] = 64
    """Prompts, and so groups of rollouts, trained in one step; under SFT the number of records."""
    prompts_per_update: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Prompts in one optimizer update; must divide promptsPerStep. Unset: one update from all
    prompts of the step."""
    passes_per_step: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of times that a step trains its rollouts."""
    optimizer: Optimizer = Field(default_factory=Optimizer)
    precision: Precision = "BF16"
    """Number type of the computation and of published weights. The optimizer's own copy of the
    weights is always FP32. `FP16` is for GPUs without BF16: losses are scaled so that gradients
    do not vanish, and an update whose gradient overflows is skipped and counted."""
    lora: LoRA | None = None
    """Train low-rank adapters instead of all weights. Unset: all weights are trained."""
    vision: Literal["Frozen", "Trained"] = "Frozen"
    """What becomes of the vision tower of a vision-language model. `Frozen`: the language model
    alone is trained. `Trained`: both are. `Trained` is refused for other models."""
    gradient_checkpointing: bool | None = None
    """Whether activations are computed again in the backward pass instead of kept: less memory,
    about a third more time. Unset: on GPUs they are, without GPUs they are not."""
    offload_activations: bool = False
    """Whether activations wait in host memory for the backward pass. Needs a GPU and
    gradientCheckpointing."""
    offload_optimizer: bool = False
    """Whether the optimizer's moments are kept in host memory. Needs a GPU."""
    offload_parameters: bool = False
    """Whether weights, gradients and moments are kept in host memory between uses. Needs a GPU."""
    offload_reference: bool = False
    """Whether the reference of algorithm.kl, or the teacher, is kept in host memory, from where
    each layer is taken as it runs. Needs a GPU. With adapters (lora) the reference of algorithm.kl
    is the model without them and takes no memory."""
    memory: DeviceMemory = Field(default_factory=DeviceMemory)
    max_tokens_per_microbatch: MicrobatchTokens = AUTO
    """Most tokens computed at a time; lower it to save memory. It changes no result, and must hold
    the longest sequence. `Auto`: as many as fit the GPU's memory by formula, at most 32768 or the
    longest sequence; without GPUs 32768 or that. The trainer logs what it has chosen."""
    max_sequences_per_microbatch: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Most sequences computed at a time. It changes no result. Unset: any number."""
    on_no_signal: Literal["Warn", "Fail"] = "Warn"
    """What happens when noSignalSteps steps in a row give the policy nothing to learn, e.g. all
    rewards are 0. `Warn`: the condition LearningSignal says so. `Fail`: the attempt fails too."""
    no_signal_steps: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Steps in a row without a learning signal after which that is reported."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    tracking: Tracking = Field(default_factory=Tracking)
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 42
    """Seed of everything random in the run: order of records, sampling, updates."""

    @property
    def microbatch_tokens(self) -> int:
        """Most tokens of a microbatch; ``Auto`` that nobody has resolved is the most it can be."""
        tokens = self.max_tokens_per_microbatch
        return MOST_AUTO_TOKENS if tokens == AUTO else tokens

    @property
    def served_adapters(self) -> LoRA | None:
        """Adapters that engines load beside the model; None where they load whole models."""
        return None if self.lora is None or self.lora.merged else self.lora

    @property
    def total_steps(self) -> int:
        """Steps; with ``epochs`` they are known only to a trainer that has read the data."""
        assert self.steps is not None, "epochs become steps once the data are read"
        return self.steps

    def for_records(self, records: int) -> Training:
        """The same training with its steps known.

        Args:
            records: of all training sources together, ≥ 1; 0 where nothing is trained.
        """
        if self.epochs is None:
            return self if self.steps is not None else self.model_copy(update={"steps": 0})
        steps = -(-self.epochs * records // self.prompts_per_step)
        return self.model_copy(update={"steps": steps})
