"""Writes the additions of the demo: `train.jsonl`, and `test.jsonl` which is never trained on."""

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path

LARGEST = 99
TRAIN_COUNT = 2048
TEST_COUNT = 200
SEED = 20


@dataclass(frozen=True)
class Addition:
    """One problem: two summands in [0, 99]."""

    left: int
    right: int

    @property
    def query(self) -> str:
        """The user's message, such as `17+25=`."""
        return f"{self.left}+{self.right}="

    @property
    def total(self) -> int:
        """The right answer, in [0, 198]."""
        return self.left + self.right


@dataclass(frozen=True)
class Split:
    """All 10,000 additions: `test` is disjoint from `train`, and `train` is part of `unheld`."""

    train: tuple[Addition, ...]
    test: tuple[Addition, ...]
    unheld: tuple[Addition, ...]


def split(seed: int = SEED) -> Split:
    """Shuffles every addition and cuts the held-out ones off.

    `a+b` and `b+a` fall on the same side, so that no held-out problem is seen mirrored.
    """
    pairs = [(a, b) for a in range(LARGEST + 1) for b in range(a, LARGEST + 1)]
    generator = random.Random(seed)
    generator.shuffle(pairs)
    test = [Addition(*generator.sample(pair, 2)) for pair in pairs[:TEST_COUNT]]
    unheld = [Addition(*p) for a, b in pairs[TEST_COUNT:] for p in sorted({(a, b), (b, a)})]
    generator.shuffle(unheld)
    return Split(train=tuple(unheld[:TRAIN_COUNT]), test=tuple(test), unheld=tuple(unheld))


def write_records(path: Path, additions: tuple[Addition, ...]) -> None:
    """Writes one JSON object with `id`, `query` and `answer` per line."""
    records = (
        {"id": f"{path.stem}-{number:04d}", "query": item.query, "answer": str(item.total)}
        for number, item in enumerate(additions)
    )
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def main() -> None:
    """Command line: `python examples/arithmetic/make_data.py --out DIR`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for both files")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    additions = split()
    write_records(folder / "train.jsonl", additions.train)
    write_records(folder / "test.jsonl", additions.test)
    print(f"{folder}: train.jsonl {TRAIN_COUNT}, test.jsonl {TEST_COUNT} additions")


if __name__ == "__main__":
    main()
