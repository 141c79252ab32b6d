"""One training step from its samples."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.documents.step_metrics import MOST_GPUS, GpuUse
from rl_contracts.spec.algorithm.algorithm import CRITIC_FIELD, TEACHER_FIELD
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm import minibatches, objective
from rl_trainer.algorithm.assessment import Assessment
from rl_trainer.algorithm.kl import controller
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Gap, Rates, Tally, Update
from rl_trainer.distributed.rank_commands import Purpose
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import memory, microbatch, model_outputs, models
from rl_trainer.model import optimizer as optimizers
from rl_trainer.model.parallel import pieces, shares
from rl_trainer.model.parallel.pieces import StoredTensor
from rl_trainer.model.policy import Policy
from rl_trainer.model.usage import flops, gpu_use
from rl_trainer.model.weight_update import WeightUpdater
from rl_trainer.phases import ANNOTATE, CRITIC, UPDATE, Phases


class Learner:
    """The policy, its optimizer, its loss, and what else changes with every step.

    Args:
        policy: with the weights that training starts from, whole on every rank; its module
            is divided among them.
        spec: the manifest.
        critic: the model that the critic starts from; None: the policy.
        teacher: the reference; None: the policy as it is now.
        adapter: where adapters are to be trained instead of all weights: whose.
        world: the ranks; each is given all samples and takes its share.
        clock: seconds, for durations.
    """

    def __init__(
        self,
        policy: Policy,
        spec: RLJobSpec,
        *,
        critic: Policy | None = None,
        teacher: Policy | None = None,
        adapter: AdapterEntry | None = None,
        world: World = ALONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world = world
        self._spec, self._shape = spec, microbatch.known_shape(policy.module.config.to_dict())
        self._others = {
            field: known
            for field, model in ((CRITIC_FIELD, critic), (TEACHER_FIELD, teacher))
            if model is not None
            and (known := microbatch.known_shape(model.module.config.to_dict())) is not None
        }
        self._algorithm = spec.algorithm
        self.training = spec.training
        self._clock = clock
        self.models = models.build(
            policy, spec, critic=critic, teacher=teacher, adapter=adapter, world=world
        )
        self.policy = self.models.policy
        self.parameters = self.policy.parameters()
        trained = sum(parameter.numel() for parameter in self.parameters.values())
        self._meter = flops.Meter(
            work=flops.work_of(
                policy.module.config, adapter_parameters=trained if adapter else None
            ),
            peak=flops.peak(flops.device_name(policy.device), half=policy.half is not None),
            chips=world.size,
        )
        self.optimizer = optimizers.build(self.parameters, spec.training.optimizer)
        self._updater = WeightUpdater(self.models, self.parameters, self.optimizer)
        self.controls = controller.initial(spec.algorithm)
        section = spec.algorithm.critic
        self._policy_waits = 0 if section is None else section.warmup_steps
        policy.module.train()

    def update(self, samples: Sequence[Sample], *, step: int, rates: Rates | None = None) -> Update:
        """Make training step ``step`` (≥ 1): a deterministic function of weights, samples, rates.

        Each of its updates divides a sum over its tokens by numbers of the whole update, so that
        neither packing nor the number of microbatches changes it.

        Args:
            samples: of the step.
            step: its number.
            rates: of a step that is made again, since the manifest's may have changed; None, also
                for the critic's: those of the manifest.

        Raises:
            TrainingFailedError: loss or gradient is not finite; that update was not made.
            OutOfMemoryError: the GPU had no memory left; the weights may be half updated.
        """
        with self._explaining(f"step {step}"):
            return self._make(samples, step=step, rates=self._rates(rates, step=step))

    def _make(self, samples: Sequence[Sample], *, step: int, rates: Rates) -> Update:
        started, phases = self._clock(), Phases(self._clock)
        # Dropout of adapters depends on seed, step and rank alone: a replayed step repeats it,
        # and so do ranks that compute the same tokens together.
        torch.manual_seed(self.training.seed * 1_000_003 + step + (self.world.token_rank << 48))
        optimizers.set_rate(self.optimizer, rates.policy)
        value_loss = None
        if self.models.critic is not None:
            assert rates.critic is not None
            with phases.of(CRITIC):
                value_loss = self.models.critic.update(samples, step=step, rate=rates.critic)
        planned = self._plan(samples, step=step) if step > self._policy_waits else []
        with phases.of(ANNOTATE):
            samples = model_outputs.annotated(self.models, samples, proximal=len(planned) > 1)
        tally, first_pass = Tally(), len(planned) // self.training.passes_per_step
        with phases.of(UPDATE):
            for number, chosen in enumerate(planned):
                part = [samples[index] for index in chosen]
                values, self.controls = self._updater.make(
                    part,
                    step=step,
                    controls=self.controls,
                    tally=tally,
                    first=number < first_pass,
                )
                if number < first_pass:
                    tally.values |= {chosen[place]: value for place, value in values.items()}
        update = dataclasses.replace(
            self._summary(tally, rates=rates, seconds=self._clock() - started),
            value_loss=value_loss,
            mfu=self._utilization(samples, planned, seconds=phases.seconds[UPDATE]),
            phases=phases.take(),
            gpus=self._gpus(),
        )
        self._advance(samples, update, step=step)
        return update

    def _rates(self, given: Rates | None, *, step: int) -> Rates:
        options, steps = self.training.optimizer, self.training.total_steps
        rates = given or Rates(policy=optimizers.learning_rate(options, step=step, steps=steps))
        critic = self.models.critic
        if critic is None:
            return Rates(policy=rates.policy)
        if rates.critic is not None:
            return rates
        return Rates(policy=rates.policy, critic=critic.rate(step=step))

    def carry(self, batch: Batch) -> None:
        """Take over what the batch that was trained holds for the next ones; on rank 0."""
        if batch.reward_baselines:
            self.controls = self.controls.model_copy(
                update={"reward_baselines": batch.reward_baselines}
            )

    def resume_controls(self, saved: Controls) -> None:
        """Go on with a checkpoint's values of what changes by itself under this manifest, too."""
        self.controls = controller.resumed(saved, self._algorithm)

    def score(
        self,
        samples: Sequence[Sample],
        *,
        temperature: float,
        advanced: Callable[[], None] = lambda: None,
    ) -> Gap:
        """Compare log-probabilities of the present weights with the samplers'.

        ``advanced`` is called after each microbatch of samples.

        Raises:
            OutOfMemoryError: the GPU had no memory left.
        """
        with self._explaining("an evaluation"):
            return model_outputs.score(
                self.models, samples, temperature=temperature, advanced=advanced
            )

    def assess(self, samples: Iterable[Sample]) -> dict[str, Assessment]:
        """What the models say of rollouts, by id; empty where the algorithm does not ask.

        Raises:
            OutOfMemoryError: the GPU had no memory left.
        """
        with self._explaining("the passes before a step"):
            return model_outputs.assess(self.models, samples)

    def share(self, samples: Sequence[Sample], *, purpose: Purpose, step: int) -> list[int]:
        """The samples whose tokens this rank needs, ascending.

        Args:
            samples: that ``update``, ``assess`` or ``score`` will be given.
            purpose: which of the three.
            step: for ``update``.
        """
        planned = self._plan(samples, step=step) if step > self._policy_waits else []
        return shares.needed(self.models, samples, purpose=purpose, planned=planned, step=step)

    def auxiliary(self) -> dict[str, Tensor]:
        """Tensors of the training state besides the policy's weights and moments; no copies."""
        tensors: dict[str, Tensor] = {}
        if self.models.reference is not None and self._refreshes:
            tensors |= pieces.under("reference/", self.models.reference.state())
        if self.models.critic is not None:
            tensors |= pieces.under("critic/", self.models.critic.state())
        return tensors

    def restore_auxiliary(self, saved: Mapping[str, StoredTensor]) -> None:
        """Put back what ``auxiliary`` returned; KeyError where something is missing."""
        if self.models.reference is not None and self._refreshes:
            self.models.reference.load(pieces.below("reference/", saved))
        if self.models.critic is not None:
            self.models.critic.load(pieces.below("critic/", saved))

    @property
    def trains(self) -> bool:
        """Whether the manifest's objective changes weights."""
        return self._algorithm.objective not in ("Evaluation", "Sampling")

    def _explaining(self, doing: str) -> AbstractContextManager[None]:
        return memory.explaining(
            self._spec, self._shape, doing=doing, ranks=self.world.size, others=self._others
        )

    @property
    def _refreshes(self) -> bool:
        kl = self._algorithm.divergence
        return kl is not None and kl.refresh_every_steps is not None

    def _plan(self, samples: Sequence[Sample], *, step: int) -> list[list[int]]:
        return minibatches.updates(
            [sample.group for sample in samples],
            prompts_per_update=self.training.prompts_per_update,
            passes=self.training.passes_per_step,
            seed=self.training.seed,
            step=step,
        )

    def _summary(self, tally: Tally, *, rates: Rates, seconds: float) -> Update:
        algorithm, number = self._algorithm, max(1, len(tally.losses))
        with_kl = algorithm.divergence is not None
        return Update(
            loss=sum(tally.losses) / number,
            gradient_norm=sum(tally.norms) / max(1, len(tally.norms)),
            learning_rate=rates.policy,
            critic_learning_rate=rates.critic,
            clip_fraction=tally.mean(objective.CLIPPED),
            correction_weight=tally.mean(objective.KEPT, default=1.0),
            gap=tally.gap,
            seconds=seconds,
            values=tally.values,
            log_ratios=tally.log_ratios,
            kl=tally.first_mean(objective.DIVERGENCE) if with_kl else None,
            kl_coefficient=self.controls.kl_coefficient if with_kl else None,
            entropy=tally.first_mean(objective.ENTROPY) if tally.first_tokens else None,
            tau=self.controls.tau if algorithm.estimator.kind == "MaxEnt" else None,
            experts=tally.experts,
            skipped=len(tally.losses) - len(tally.norms),
            loss_scale=self.controls.loss_scale if self._updater.scales else None,
        )

    def _gpus(self) -> tuple[GpuUse, ...]:
        """The use of each rank's GPU, by rank; empty on processors. A collective call."""
        own = gpu_use.since_last(self.policy.device)
        if own is None:
            return ()
        uses = self.world.gather(own.model_dump())
        return tuple(GpuUse.model_validate(use) for use in uses[:MOST_GPUS])

    def _utilization(
        self, samples: Sequence[Sample], planned: Sequence[Sequence[int]], *, seconds: float
    ) -> float | None:
        if not planned:
            return None
        lengths = [len(samples[index]) for chosen in planned for index in chosen]
        return self._meter.utilization(lengths, seconds=seconds)

    def _advance(self, samples: Sequence[Sample], update: Update, *, step: int) -> None:
        kl = self._algorithm.divergence
        self.controls = controller.advance(
            self.controls,
            self._algorithm,
            kl=update.kl if step > self._policy_waits else None,
            rollouts=len({sample.rollout for sample in samples}),
            weight_entropy=self._weight_entropy(samples),
        )
        every = None if kl is None else kl.refresh_every_steps
        if self.models.reference is not None and every is not None and step % every == 0:
            self.models.reference.refresh(self.policy)

    def _weight_entropy(self, samples: Sequence[Sample]) -> float | None:
        if self._algorithm.estimator.kind != "MaxEnt":
            return None
        groups: dict[str, dict[str, float]] = {}
        for sample in samples:
            groups.setdefault(sample.group, {})[sample.rollout] = sample.advantage
        return controller.mean_entropy([list(group.values()) for group in groups.values()])
