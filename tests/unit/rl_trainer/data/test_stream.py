from __future__ import annotations

from typing import Any

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.task import Message
from rl_contracts.spec.data import TrainSource
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.stream import TrainStream
from tests.unit.rl_trainer.conftest import MakeSpec


def an_example(query: str = "1+1=", *before: Message, **changes: Any) -> Example:
    messages = (*before, Message(role="user", content=query))
    return Example(**{"id": "e", "messages": messages, "answer": "2"} | changes)


def a_dataset(*examples: Example, name: str = "sums", weight: float = 1.0) -> Dataset:
    source = TrainSource(name=name, uri="s3://data/train.jsonl", weight=weight)
    return Dataset(source=source, split="train", examples=examples)


def test_a_task_holds_all_that_a_sampler_needs(make_spec: MakeSpec) -> None:
    spec = make_spec(
        agent={"systemPrompt": "Add.", "sampling": {"temperature": 0.7}},
        algorithm={"groupSize": 4},
    )
    stream = TrainStream(run="r", spec=spec, datasets=[a_dataset(an_example())])
    task = stream.task(7, step=3)
    assert task == stream.task(7, step=3)
    assert task.id == "r.train.00000007"
    assert [(message.role, message.text) for message in task.messages] == [
        ("system", "Add."),
        ("user", "1+1="),
    ]
    assert (task.answer, task.group_size, task.temperature, task.created_step) == ("2", 4, 0.7, 3)
    assert (task.split, task.dataset, task.dataset_epoch, task.example) == ("train", "sums", 7, "e")


def test_a_task_has_its_records_scenario(make_spec: MakeSpec) -> None:
    talk = an_example(scenario=("And?", "Thanks."))
    task = TrainStream(run="r", spec=make_spec(), datasets=[a_dataset(talk)]).task(0, step=0)
    assert task.scenario == ["And?", "Thanks."]


def test_a_task_has_the_fields_of_its_record(make_spec: MakeSpec) -> None:
    example = an_example(fields='{"unit": "m"}')
    task = TrainStream(run="r", spec=make_spec(), datasets=[a_dataset(example)]).task(0, step=0)
    assert task.record_fields == {"unit": "m"}


def test_no_system_prompt_is_added_to_a_record_with_its_own(make_spec: MakeSpec) -> None:
    own = an_example("1+1=", Message(role="system", content="Own."))
    spec = make_spec(agent={"systemPrompt": "Add."})
    task = TrainStream(run="r", spec=spec, datasets=[a_dataset(own)]).task(0, step=0)
    assert [message.text for message in task.messages] == ["Own.", "1+1="]
    plain = TrainStream(run="r", spec=make_spec(), datasets=[a_dataset(an_example())])
    assert [message.role for message in plain.task(0, step=0).messages] == ["user"]


def test_sources_are_mixed_by_weight_and_by_the_seed_of_the_data(make_spec: MakeSpec) -> None:
    examples = [an_example(id=f"e{number}") for number in range(20)]
    sources = [a_dataset(*examples, weight=3.0), a_dataset(*examples, name="more")]

    def drawn(**data: Any) -> list[tuple[str, str]]:
        spec = make_spec(data={"train": [{"name": "sums", "uri": "s3://data/a.json"}], **data})
        stream = TrainStream(run="r", spec=spec, datasets=sources)
        tasks = [stream.task(sequence, step=0) for sequence in range(24)]
        return [(task.dataset, task.example) for task in tasks]

    assert sum(name == "more" for name, _ in drawn()) == 6
    assert drawn() == drawn(seed=42)  # the seed of the training
    assert drawn(seed=1) == drawn(seed=1) != drawn()
    assert drawn(shuffle=False)[0] == ("sums", "e0")
