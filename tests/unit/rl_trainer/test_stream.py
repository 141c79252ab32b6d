from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.dataset import Example
from rl_trainer.stream import TrainStream, position
from tests.unit.rl_trainer.conftest import MakeSpec

SIZES = st.integers(1, 50)
SEEDS = st.integers(0, 2**31 - 1)


@given(SIZES, SEEDS, st.integers(0, 5))
def test_every_pass_holds_every_example_once(size: int, seed: int, pass_number: int) -> None:
    places = range(pass_number * size, (pass_number + 1) * size)
    assert sorted(position(one, size=size, seed=seed) for one in places) == list(range(size))


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    def order(first: int, seed: int) -> list[int]:
        return [position(one, size=30, seed=seed) for one in range(first, first + 30)]

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(30, 1)
    assert order(0, 1) != order(0, 2)


def test_a_task_says_all_that_a_sampler_needs(make_spec: MakeSpec) -> None:
    spec = make_spec(
        agent={"systemPrompt": "Add.", "sampling": {"temperature": 0.7}},
        algorithm={"groupSize": 4},
    )
    example = Example(id="e", query="1+1=", answer="2")
    stream = TrainStream(run="r", spec=spec, examples=[example])
    task = stream.task(7, step=3)
    assert task == stream.task(7, step=3)
    assert task.id == "r.train.00000007"
    assert [(one.role, one.content) for one in task.messages] == [
        ("system", "Add."),
        ("user", "1+1="),
    ]
    assert (task.answer, task.group_size, task.temperature, task.created_step) == ("2", 4, 0.7, 3)
    plain = TrainStream(run="r", spec=make_spec(), examples=[example]).task(0, step=0)
    assert [one.role for one in plain.messages] == ["user"]
