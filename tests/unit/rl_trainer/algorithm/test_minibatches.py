from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.minibatches import updates

GROUPS = ["a", "a", "b", "c", "c", "c", "d"]


def test_one_update_takes_everything_in_order() -> None:
    assert updates(GROUPS, prompts_per_update=None, passes=1, seed=1, step=1) == [[*range(7)]]
    assert updates(GROUPS, prompts_per_update=4, passes=2, seed=1, step=1) == [[*range(7)]] * 2


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9))
def test_each_pass_takes_every_sequence_once_in_whole_groups(
    size: int, passes: int, seed: int, step: int
) -> None:
    chosen_updates = updates(GROUPS, prompts_per_update=size, passes=passes, seed=seed, step=step)
    each = -(-4 // size)
    assert len(chosen_updates) == each * passes
    for number in range(passes):
        chosen = chosen_updates[number * each : (number + 1) * each]
        assert sorted(index for indices in chosen for index in indices) == [*range(7)]
        for indices in chosen:
            assert indices == sorted(indices)
            taken = {GROUPS[index] for index in indices}
            assert len(indices) == sum(group in taken for group in GROUPS)
    assert chosen_updates == updates(
        GROUPS, prompts_per_update=size, passes=passes, seed=seed, step=step
    )


def test_passes_and_steps_are_shuffled_differently() -> None:
    names = [str(number) for number in range(20)]
    first = updates(names, prompts_per_update=1, passes=2, seed=1, step=1)
    assert first[:20] != first[20:]
    assert first != updates(names, prompts_per_update=1, passes=2, seed=1, step=2)
