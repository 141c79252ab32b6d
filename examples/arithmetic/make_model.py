"""Makes the demo's model: a small Qwen3 that gets about a third of the additions right.

It first learns to add, then to answer with the noise of a careless pupil: the right sum most often,
and else one that is off by one, two or ten. Reinforcement learning has to take the noise away. No
held-out problem is ever trained on. The same machine and seed give the same bytes.
"""

import argparse
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tokenizers
import torch
import transformers
from byte_tokenizer import byte_tokenizer
from make_data import Addition, split
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 512
SOURCES = ("make_model.py", "make_data.py", "byte_tokenizer.py")
IGNORED = -100
SLIPS = (-11, -10, -9, -2, -1, 1, 2, 9, 10, 11)


@dataclass(frozen=True)
class Recipe:
    """The supervised warm start.

    Attributes:
        clean_steps: updates on right answers.
        noisy_steps: updates on answers that are right with probability `right_share`.
        batch: additions per update.
        clean_rate: peak learning rate of the first part, reached after `warmup` updates.
        noisy_rate: learning rate at the start of the second part. Both fall linearly to 0.
        right_share: in (0, 1).
        accepted: bounds of the probability of a right answer, else the model is refused.
        threads: of torch; another number gives other bytes. One: beside other work, two threads
            that wait for each other took ten times as long.
    """

    clean_steps: int = 700
    noisy_steps: int = 250
    batch: int = 64
    clean_rate: float = 2e-3
    warmup: int = 50
    noisy_rate: float = 1e-3
    right_share: float = 0.46
    accepted: tuple[float, float] = (0.25, 0.40)
    threads: int = 1
    seed: int = 0


class Warmstart:
    """Encodes additions and trains the model on them."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.random = random.Random(recipe.seed)
        self.encode = lru_cache(maxsize=None)(self._encode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def batch(self, answers: list[tuple[Addition, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and labels, int64 [additions, tokens], padded on the right.

        Labels are shifted already: label t is the token that follows id t, or `IGNORED` where
        that token is no part of the answer.
        """
        prompts = [self.encode(f"<|user|>{item.query}<|end|><|assistant|>") for item, _ in answers]
        replies = [self.encode(f"<answer>{number}</answer><|end|>") for _, number in answers]
        width = max(len(p) + len(r) for p, r in zip(prompts, replies, strict=True))
        ids = torch.full((len(answers), width), self.tokenizer.pad_token_id)
        labels = torch.full((len(answers), width), IGNORED)
        for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            end = len(prompt) + len(reply)
            ids[row, :end] = torch.tensor(prompt + reply)
            labels[row, len(prompt) - 1 : end - 1] = torch.tensor(reply)
        return ids, labels

    def noisy(self, item: Addition) -> int:
        """The answer of a careless pupil: not below 0."""
        if self.random.random() < self.recipe.right_share:
            return item.total
        return max(0, item.total + self.random.choice(SLIPS))

    def train(self, model: Qwen3ForCausalLM, say: Callable[[str], None]) -> None:
        """Trains in place."""
        recipe = self.recipe
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.clean_rate, betas=(0.9, 0.98), weight_decay=0.1
        )
        problems = split()
        steps = recipe.clean_steps + recipe.noisy_steps
        for step in range(steps):
            clean = step < recipe.clean_steps
            chosen = self.random.choices(problems.unheld, k=recipe.batch)
            answers = [(item, item.total if clean else self.noisy(item)) for item in chosen]
            for group in optimizer.param_groups:
                group["lr"] = self._rate(step)
            loss = self._update(model, optimizer, answers)
            if (step + 1) % 50 == 0:
                kind = "right" if clean else "noisy"
                say(f"step {step + 1}/{steps}, {kind} answers, loss {loss:.3f}")

    def _rate(self, step: int) -> float:
        recipe = self.recipe
        if step < recipe.clean_steps:
            warming = min(1.0, (step + 1) / recipe.warmup)
            return recipe.clean_rate * warming * (1 - step / recipe.clean_steps)
        return recipe.noisy_rate * (1 - (step - recipe.clean_steps) / recipe.noisy_steps)

    def _update(
        self,
        model: Qwen3ForCausalLM,
        optimizer: torch.optim.Optimizer,
        answers: list[tuple[Addition, int]],
    ) -> float:
        ids, labels = self.batch(answers)
        logits = model(ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def right_probability(
        self, model: Qwen3ForCausalLM, additions: tuple[Addition, ...]
    ) -> tuple[float, float]:
        """Exact shares of right answers at temperature 1, and with the most probable tokens."""
        ids, labels = self.batch([(item, item.total) for item in additions])
        log_probs = torch.log_softmax(model(ids, use_cache=False).logits, dim=-1)
        asked = labels != IGNORED
        chosen = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        greedy = ((log_probs.argmax(-1) == labels) | ~asked).all(-1)
        return (chosen * asked).sum(-1).exp().mean().item(), greedy.float().mean().item()


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained Qwen3 of 0.82 million parameters in float32, from torch's global seed."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        # transformers' own 0.02 is meant for wide models; at this width it doubles the updates
        # that it takes to learn carrying.
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def make(folder: Path, recipe: Recipe) -> None:
    """Trains the model and saves it with its tokenizer.

    Raises:
        SystemExit: the model is not the one that the recipe promises.
    """
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.1f} s] model: {text}", flush=True)

    torch.set_num_threads(recipe.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(recipe.seed)
    tokenizer = byte_tokenizer(CONTEXT)
    model = new_model(tokenizer)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, untrained")
    warmstart = Warmstart(recipe, tokenizer)
    warmstart.train(model, say)
    sampled, greedy = warmstart.right_probability(model.eval(), split().test)
    say(f"held-out additions right: {sampled:.3f} at temperature 1, {greedy:.3f} at temperature 0")
    low, high = recipe.accepted
    if not low <= sampled <= high:
        raise SystemExit(
            f"model: {sampled:.3f} of the held-out additions are right, not {low} to {high}; "
            "change Recipe in examples/arithmetic/make_model.py"
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def cached(recipe: Recipe) -> Path:
    """The folder of the model that these sources make, made now if it is not there."""
    here = Path(__file__).parent
    key = hashlib.sha256(
        b"".join((here / name).read_bytes() for name in SOURCES)
        + f"{torch.__version__} {transformers.__version__} {tokenizers.__version__}".encode()
    ).hexdigest()[:12]
    root = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache" / "rl-operator") / "models"
    folder = root / f"arithmetic-{key}"
    if not folder.is_dir():
        part = root / f"arithmetic-{key}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part, recipe)
        part.rename(folder)
    return folder


def main() -> None:
    """Command line: `python examples/arithmetic/make_model.py --out DIR`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model's files")
    out = parser.parse_args().out
    shutil.copytree(cached(Recipe()), out, dirs_exist_ok=True)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


if __name__ == "__main__":
    main()
