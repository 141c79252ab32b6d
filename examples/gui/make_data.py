"""Writes the example's data: pages to train on, and others that are held out.

python examples/gui/make_data.py --out DIR
"""

import argparse
import json
import random
from pathlib import Path

FIRST_PAGE, LAST_PAGE, HELD_OUT, SEED = 100, 999, 32, 3


def records(pages: list[int]) -> list[dict[str, str]]:
    """A record for each page: what is asked, and the button that is right."""
    return [
        {"id": f"page-{page}", "query": f"page {page}: press green", "answer": "green"}
        for page in pages
    ]


def main() -> None:
    """Write `train.jsonl` and `test.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for both files")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    pages = list(range(FIRST_PAGE, LAST_PAGE + 1))
    random.Random(SEED).shuffle(pages)
    for name, chosen in (("test", pages[:HELD_OUT]), ("train", pages[HELD_OUT:])):
        lines = [json.dumps(record) + "\n" for record in records(chosen)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
        print(f"{folder / name}.jsonl: {len(chosen)} pages")


if __name__ == "__main__":
    main()
