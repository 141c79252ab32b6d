"""Writes tasks of reasoning-gym as a dataset of JSON lines; needs `pip install reasoning-gym`.

    python examples/reasoning-gym/make.py --tasks leg_counting,chain_sum --number 500 --out a.jsonl

A record has the question, the answer, and the entry that the package's own scorer compares with. A
task whose scorer does not accept its own answer after a way through JSON is refused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reasoning_gym


def records(task: str, *, number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Records of one task, in the order in which it generates them.

    Raises:
        ValueError: its entries do not survive JSON, so that no scorer could judge answers.
    """
    score = reasoning_gym.get_score_answer_fn(task)
    for index, entry in enumerate(reasoning_gym.create_dataset(task, size=number, seed=seed)):
        try:
            kept = json.loads(json.dumps(entry, allow_nan=False))
            value = score(kept["answer"], kept)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ValueError(f"{task}: its entries cannot be written as JSON: {error}") from error
        if value != 1:
            raise ValueError(f"{task}: its scorer needs more of an entry than JSON keeps")
        yield {
            "id": f"{task}-{seed}-{index}",
            "query": kept["question"],
            "answer": str(kept["answer"]),
            "task": task,
            "entry": kept,
        }


def main() -> None:
    """Write the dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", required=True, help="names, separated by commas")
    parser.add_argument("--number", type=int, default=500, help="records of each task")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other records")
    parser.add_argument("--out", type=Path, required=True, help="the file")
    given = parser.parse_args()
    made = 0
    with given.out.open("w") as file:
        for task in given.tasks.split(","):
            for record in records(task, number=given.number, seed=given.seed):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                made += 1
    print(f"{made} records in {given.out}")


if __name__ == "__main__":
    main()
