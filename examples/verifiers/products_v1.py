"""A taskset of verifiers 0.4: products, with a tool that multiplies. It knows no training."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import verifiers.v1 as vf

NUMBER, SEED = 400, 1


class ProductData(vf.TaskData):
    """A question and its answer."""

    product: int


class Calculator(vf.Toolset[vf.ToolsetConfig]):
    """The tool server."""

    @vf.tool
    async def multiply(self, a: int, b: int) -> str:
        """Multiply two whole numbers."""
        return str(a * b)


class ProductTask(vf.Task[ProductData]):
    """Answered by the last number that the policy wrote."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        """The tools of each rollout."""
        return [Calculator(vf.ToolsetConfig())]

    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """1 for the product, else 0."""
        numbers = re.findall(r"-?\d+", trace.last_reply or "")
        return float(bool(numbers) and int(numbers[-1]) == self.data.product)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        """Responses of the policy."""
        return float(trace.num_turns)


class Products(vf.Taskset[ProductTask]):
    """The tasks, always the same ones."""

    def load(self) -> Iterator[ProductTask]:
        """Make them."""
        numbers = random.Random(SEED)
        for _ in range(NUMBER):
            a, b = numbers.randint(10, 99), numbers.randint(10, 99)
            yield ProductTask(ProductData(prompt=f"{a}*{b}=", product=a * b), self.config.task)


__all__ = ["Products"]

if __name__ == "__main__":  # verifiers starts this module as the tool server
    Calculator.run()
