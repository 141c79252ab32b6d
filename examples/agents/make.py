"""Makes the model and the data of an example with an agent.

The model is a small Qwen3 with a vocabulary of its own: bytes, and merges learned from the task's
texts. It copies right and careless episodes, so that it does about a third of the task right; what
is left is reinforcement learning's. It takes a minute or two on one core.
"""

import argparse
import hashlib
import os
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
import transformers
from tasks import TASKS, Episode, Numbers, Split, Task, split, write_collection, write_records
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 1024
IGNORED = -100
PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
# Content rather than control: decoding keeps them, so parsers and scorers see them.
TAGS = ("<answer>", "</answer>", "<tool_call>", "</tool_call>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' ~ message.role ~ '|>' ~ message.content ~ '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


@dataclass(frozen=True)
class Recipe:
    """The supervised warm start.

    Attributes:
        right_steps: updates on right episodes.
        mixed_steps: updates on episodes that are right with probability `right_share`.
        batch: episodes per update.
        rate: peak learning rate, reached after `warmup` updates; it falls linearly to 0.
        accepted: bounds of a right episode's probability, else the model is refused.
    """

    right_steps: int = 250
    mixed_steps: int = 100
    batch: int = 32
    rate: float = 3e-3
    warmup: int = 30
    right_share: float = 0.33
    accepted: tuple[float, float] = (0.10, 0.55)
    seed: int = 0


RECIPES = {
    "calculator": Recipe(),
    "conversation": Recipe(right_share=0.25),
    "search": Recipe(),
    # Its prompt holds the agent's instructions: an episode is three times as long as another's.
    "programs": Recipe(batch=12),
}


def text_of(episode: Episode) -> str:
    """An episode as the chat template has it."""
    return "".join(f"<|{message['role']}|>{message['content']}{END}" for message in episode)


def new_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE (Sennrich et al., 1508.07909) of `texts`; each digit is a token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    core.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True) for token in (PAD, END, *ROLES)]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained Qwen3 of under a million parameters in float32, from torch's global seed."""
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
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


class Warmstart:
    """Encodes episodes and trains a model on them."""

    def __init__(self, task: Task, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
        self.task, self.recipe, self.tokenizer = task, recipe, tokenizer
        self.random = random.Random(recipe.seed)

    def batch(self, episodes: Sequence[Episode]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and labels, int64 [episodes, tokens], padded on the right.

        Labels are shifted already: label t is the token that follows id t, or `IGNORED` where
        that token is not the policy's.
        """
        rows = [self._encode(episode) for episode in episodes]
        width = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), width), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), width), IGNORED)
        for row, (tokens, wanted) in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            labels[row, : len(wanted) - 1] = torch.tensor(wanted[1:])
        return ids, labels

    def _encode(self, episode: Episode) -> tuple[list[int], list[int]]:
        """Ids of an episode; the same with `IGNORED` in place of what is not the policy's."""
        ids: list[int] = []
        own: list[int] = []
        for message in episode:
            opening = self.tokenizer.encode(f"<|{message['role']}|>", add_special_tokens=False)
            said = self.tokenizer.encode(f"{message['content']}{END}", add_special_tokens=False)
            ids += opening + said
            kept = said if message["role"] == "assistant" else [IGNORED] * len(said)
            own += [IGNORED] * len(opening) + kept
        return ids, own

    def train(self, model: Qwen3ForCausalLM, pairs: Sequence[Numbers]) -> float:
        """Trains in place; returns the last loss."""
        recipe = self.recipe
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98))
        steps = recipe.right_steps + recipe.mixed_steps
        loss = float("nan")
        for step in range(steps):
            share = 1.0 if step < recipe.right_steps else recipe.right_share
            chosen = self.random.choices(pairs, k=recipe.batch)
            warming = min(1.0, (step + 1) / recipe.warmup)
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * warming * (1 - step / steps)
            loss = self._update(model, optimizer, [self._episode(pair, share) for pair in chosen])
        return loss

    def _episode(self, pair: Numbers, share: float) -> Episode:
        right = self.random.random() < share
        return self.task.episode(pair, None if right else self.random)

    def _update(
        self, model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer, episodes: list[Episode]
    ) -> float:
        ids, labels = self.batch(episodes)
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
    def right_probability(self, model: Qwen3ForCausalLM, pairs: Sequence[Numbers]) -> float:
        """Mean probability, at temperature 1, that the policy acts out the right episode."""
        ids, labels = self.batch([self.task.episode(pair) for pair in pairs])
        log_probs = torch.log_softmax(model(ids, use_cache=False).logits, dim=-1)
        chosen = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return (chosen * (labels != IGNORED)).sum(-1).exp().mean().item()


def make(folder: Path, task: Task, recipe: Recipe, pairs: Split) -> None:
    """Trains the model and saves it with its tokenizer.

    Raises:
        SystemExit: the model is not the one that the recipe promises.
    """
    begin = time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    tokenizer = new_tokenizer([text_of(task.episode(pair)) for pair in pairs.train])
    model = new_model(tokenizer)
    warmstart = Warmstart(task, recipe, tokenizer)
    # All pairs but those that are held out.
    seen = [pair for pair in split(train=10_000).train if pair not in pairs.test]
    loss = warmstart.train(model, seen)
    right = warmstart.right_probability(model.eval(), pairs.test)
    print(f"{time.monotonic() - begin:.0f} s: loss {loss:.3f}, right episodes {right:.3f}")
    low, high = recipe.accepted
    if not low <= right <= high:
        raise SystemExit(f"model: {right:.3f} is not {low} to {high}; change Recipe in make.py")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def cached(name: str, recipe: Recipe) -> Path:
    """The folder of the model that these sources make, made now if it is not there."""
    task = TASKS[name]
    here = Path(__file__).parent
    prompt = text_of(task.prompt((10, 10)))
    versions = f"{torch.__version__} {transformers.__version__} {tokenizers.__version__}"
    sources = b"".join((here / file).read_bytes() for file in ("make.py", "tasks.py"))
    key = hashlib.sha256(sources + f"{prompt} {versions}".encode()).hexdigest()[:12]
    root = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache" / "rl-operator") / "models"
    folder = root / f"{name}-{key}"
    if not folder.is_dir():
        part = root / f"{name}-{key}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part, task, recipe, split())
        part.rename(folder)
    return folder


def main() -> None:
    """Command line: `python examples/agents/make.py calculator --out DIR`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--out", type=Path, required=True, help="gets folders model and data")
    arguments = parser.parse_args()
    shutil.copytree(
        cached(arguments.task, RECIPES[arguments.task]), arguments.out / "model", dirs_exist_ok=True
    )
    data = arguments.out / "data"
    data.mkdir(exist_ok=True)
    pairs = split()
    for name, part in (("train", pairs.train), ("test", pairs.test)):
        write_records(data / f"{name}.jsonl", TASKS[arguments.task], part)
    if arguments.task == "search":
        write_collection(arguments.out / "collection.jsonl", pairs.train + pairs.test)
    print(f"{arguments.out}: model, {len(pairs.train)} train and {len(pairs.test)} test records")


if __name__ == "__main__":
    main()
