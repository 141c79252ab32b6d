"""A scorer, a tool and an agent of one's own; docs/guides/extending.md explains them."""

from rl_sampler.extension import Member, Response, StopReason, ToolError, show


def brevity(response: Response, *, words: int) -> float:
    """1 for up to so many words, less for more."""
    return min(1.0, words / max(1, len(response.text.split())))


def multiply(a: int, b: int, *, largest: int) -> str:
    """Multiplies two whole numbers."""
    if abs(a * b) > largest:
        raise ToolError(f"the product is larger than {largest}")
    return str(a * b)


async def second_look(member: Member, *, question: str) -> StopReason:
    """One round of tools, or a question; then the answer."""
    parsed = await member.calls(member.turns[-1])
    ask = [{"role": "user", "content": question}]
    if await show(member, await member.use(parsed.calls) if parsed.calls else ask):
        await member.respond()
    return member.turns[-1].stop_reason
