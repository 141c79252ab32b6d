"""The tasks of the agents' examples: their records, and the episodes that a small model copies.

An episode is a list of messages as the samplers make them; those of `assistant` are the policy's.
Each task has right episodes and careless ones: reinforcement learning takes the careless ones away.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from rl_contracts.documents.task import Message
from rl_sampler.agents import IN_TEXT, with_instructions
from rl_sampler.tools.search import Document, described

EXAMPLES = Path(__file__).parent.parent
Episode = list[dict[str, str]]
Numbers = tuple[int, int]
LARGEST = 99


@dataclass(frozen=True)
class Task:
    """One example's task, over pairs of numbers in [10, 99].

    Attributes:
        record: what the data hold of a pair: `query`, `answer` and what else the agent needs.
        right: the policy's messages and what it is told between them, where all goes well.
        careless: the same where it does not.
        manifest: whose system prompt and agent the episodes follow.
    """

    record: Callable[[int, int], dict[str, object]]
    right: Callable[[int, int], Episode]
    careless: Callable[[int, int, random.Random], Episode]
    manifest: str

    def episode(self, numbers: Numbers, careless: random.Random | None = None) -> Episode:
        """A whole episode: the prompt and what follows; `careless` chooses how it goes wrong."""
        made = self.right(*numbers) if careless is None else self.careless(*numbers, careless)
        return [*self.prompt(numbers), *made]

    def prompt(self, numbers: Numbers) -> Episode:
        """The messages before the policy's first."""
        agent = job(self.manifest)["spec"]["agent"]
        messages = [Message(role="user", content=str(self.record(*numbers)["query"]))]
        if agent.get("systemPrompt"):
            messages.insert(0, Message(role="system", content=agent["systemPrompt"]))
        if agent["kind"] in IN_TEXT:
            messages = with_instructions(messages, IN_TEXT[agent["kind"]](()))
        return [{"role": message.role, "content": message.text} for message in messages]


def job(manifest: str) -> dict:
    """The RLJob of an example."""
    return yaml.safe_load((EXAMPLES / manifest).read_text(encoding="utf-8"))


def says(role: str, content: str) -> dict[str, str]:
    """A message."""
    return {"role": role, "content": content}


def answers(text: object) -> dict[str, str]:
    """The policy's answer, as `answerSchema: Answer` finds it."""
    return says("assistant", f"<answer>{text}</answer>")


def slip(number: int, chooser: random.Random) -> str:
    """The number with one digit wrong."""
    digits = list(str(number))
    place = chooser.randrange(len(digits))
    digits[place] = chooser.choice([digit for digit in "0123456789" if digit != digits[place]])
    return "".join(digits)


def multiply(a: int, b: int) -> Episode:
    """The policy calls the calculator and repeats what it says."""
    call = {"name": "multiply", "arguments": {"a": a, "b": b}}
    return [
        says("assistant", f"<tool_call>{json.dumps(call)}</tool_call>"),
        says("tool", str(a * b)),
        answers(a * b),
    ]


def code(a: int, b: int) -> str:
    """What the collection alone holds: five digits that nobody can compute."""
    return str(random.Random(f"locker {a}{b}").randrange(10_000, 100_000))


def document(a: int, b: int) -> str:
    """A document of the collection: its title, and its text below."""
    return f"Locker {a}{b}\nThe code is {code(a, b)}."


def search(a: int, b: int) -> Episode:
    """The policy searches and repeats what it reads."""
    call = {"name": "search", "arguments": {"query": f"{a}{b}"}}
    return [
        says("assistant", f"<tool_call>{json.dumps(call)}</tool_call>"),
        says("tool", described([Document(contents=document(a, b))])),
        answers(code(a, b)),
    ]


def remember(a: int, b: int) -> Episode:
    """The user asks for what it said before."""
    return [
        says("assistant", "Noted."),
        says("user", "What is the number of my order?"),
        answers(f"{a}{b}"),
    ]


def program(a: int, b: int) -> Episode:
    """The policy tries a program, then hands it in."""
    return [
        says("assistant", f"```python\nprint({a}+{b})\n```"),
        says("user", f"Output:\n{a + b}"),
        answers(f"print({a}+{b})"),
    ]


TASKS = {
    "calculator": Task(
        record=lambda a, b: {"query": f"{a}*{b}=", "answer": str(a * b)},
        right=multiply,
        # It guesses: a product of two numbers is more than so small a model can do by itself.
        careless=lambda a, b, chooser: [answers(slip(a * b, chooser))],
        manifest="calculator-agent.yaml",
    ),
    "conversation": Task(
        record=lambda a, b: {
            "query": f"The number of my order is {a}{b}.",
            "turns": ["What is the number of my order?"],
            "answer": f"{a}{b}",
        },
        right=remember,
        careless=lambda a, b, chooser: [
            *remember(a, b)[:2],
            answers(slip(int(f"{a}{b}"), chooser)),
        ],
        manifest="conversation.yaml",
    ),
    "search": Task(
        record=lambda a, b: {"query": f"Code of locker {a}{b}?", "answer": code(a, b)},
        right=search,
        # It guesses.
        careless=lambda a, b, chooser: [answers(slip(int(code(a, b)), chooser))],
        manifest="search-agent.yaml",
    ),
    "programs": Task(
        record=lambda a, b: {
            "query": f"Print the sum of {a} and {b}.",
            "answer": json.dumps([{"input": "", "output": str(a + b)}]),
        },
        right=program,
        # It hands in what it has not tried, and confuses signs.
        careless=lambda a, b, chooser: [answers(f"print({a}{chooser.choice('-*')}{b})")],
        manifest="code-agent.yaml",
    ),
}


@dataclass(frozen=True)
class Split:
    """All pairs: `test` is never trained on, and `train` is what the warm start sees, too."""

    train: tuple[Numbers, ...]
    test: tuple[Numbers, ...]


def split(*, train: int = 512, test: int = 64, seed: int = 20) -> Split:
    """Pairs of numbers of two digits, shuffled and cut; `(a, b)` and `(b, a)` on the same side."""
    pairs = [(a, b) for a in range(10, LARGEST + 1) for b in range(a, LARGEST + 1)]
    random.Random(seed).shuffle(pairs)
    return Split(train=tuple(pairs[test:][:train]), test=tuple(pairs[:test]))


def write_records(path: Path, task: Task, pairs: tuple[Numbers, ...]) -> None:
    """Writes one JSON object with `id` and the task's record per line."""
    records = (
        {"id": f"{path.stem}-{number:04d}", **task.record(*pair)}
        for number, pair in enumerate(pairs)
    )
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_collection(path: Path, pairs: tuple[Numbers, ...]) -> None:
    """Writes the documents that the task `search` is about, one JSON object per line."""
    documents = ({"id": f"locker-{a}{b}", "contents": document(a, b)} for a, b in pairs)
    path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
