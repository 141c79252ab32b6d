"""What viewers ask of a run, answered from the real stores."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from rl_contracts import ids
from rl_contracts.documents.task import Cause
from rl_contracts.errors import IntegrityError, ObjectTooLargeError
from rl_contracts.queries.answering import NO_RUN, Answering
from rl_contracts.queries.answers import (
    Answer,
    ImageAnswer,
    MetricsAnswer,
    NotFound,
    PoliciesAnswer,
    PromptsAnswer,
    RolloutAnswer,
    SearchAnswer,
    StepAnswer,
    SummaryAnswer,
    parse_answer,
)
from rl_contracts.queries.kinds import MOST_IMAGE_BYTES, QUERY
from rl_contracts.stores import reports
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from tests.samples.viewed_run import Shape, fill, screen


def ask(stores: Stores, query: object, *, run: str = "run1", tokenizer: str = "") -> Answer:
    parsed = QUERY.validate_python(query)
    answer = Answering().answer(stores, parsed, run=run, namespace="ns", tokenizer=tokenizer)
    assert parse_answer(parsed.kind, json.loads(answer.model_dump_json())) == answer
    return answer


def metrics(stores: Stores, **values: object) -> MetricsAnswer:
    answer = ask(stores, {"kind": "metrics", "columns": ["reward_mean"], **values})
    assert isinstance(answer, MetricsAnswer)
    return answer


def rollout(stores: Stores, name: str, **values: object) -> RolloutAnswer:
    answer = ask(stores, {"kind": "rollout", "rollout": name, **values})
    assert isinstance(answer, RolloutAnswer)
    return answer


@pytest.mark.parametrize("filed", [None, 7, 0])
def test_metrics_come_from_the_file_and_from_newer_batches(
    stores: Stores, filed: int | None
) -> None:
    fill(stores, Shape(filed=filed, epochs=(7, 9)))
    answer = metrics(stores)
    assert answer.steps == list(range(1, 13))
    assert None not in answer.series["reward_mean"].mean
    assert metrics(stores, first=5, last=9).steps == [5, 6, 7, 8, 9]
    assert "reward_parts.exact" in answer.names


def test_metrics_of_steps_that_the_file_lacks_and_no_batch_has_are_left_out(
    stores: Stores,
) -> None:
    fill(stores, Shape(filed=7, tail_metrics=False))
    assert metrics(stores).steps == [*range(1, 8), 12]  # the run document has the last


def test_buckets_keep_the_extremes_of_their_steps(stores: Stores) -> None:
    fill(stores, Shape(steps=2000, rolled=1))
    answer = metrics(stores, columns=["gradient_norm", "reward_parts."], points=20)
    series = answer.series["gradient_norm"]
    assert len(answer.steps) == 20
    assert answer.rows == 2000
    assert max(value for value in series.high if value) > 20  # a spike at step 997
    assert set(answer.series) == {"gradient_norm", "reward_parts.exact", "reward_parts.format"}


def test_a_step_shows_its_groups_with_advantages_and_its_digest(stores: Stores) -> None:
    fill(stores, Shape(epochs=(7, 9)))
    answer = ask(stores, {"kind": "step", "step": 3})
    assert isinstance(answer, StepAnswer)
    assert answer.batch == ids.batch_id(ids.RunId("run1"), 3, 7)
    assert answer.digest is not None
    assert [len(row.rollouts) for row in answer.rows] == [2, 2]
    assert [each.advantage for each in answer.rows[0].rollouts] == [-0.5, 0.5]
    absent = ask(stores, {"kind": "step", "step": 40})
    assert isinstance(absent, StepAnswer)
    assert "not trained yet" in absent.problem


def test_a_step_names_the_prompts_up_to_the_next_batch(stores: Stores) -> None:
    """Three prompts for each step, of which the last one is dropped."""
    fill(stores, Shape(epochs=(7, 9)))
    for step in (1, 3, 11, 12):
        answer = ask(stores, {"kind": "step", "step": step})
        assert isinstance(answer, StepAnswer)
        assert (answer.first_prompt, answer.end_prompt) == (3 * step - 3, 3 * step), step


def test_prompts_show_what_was_dropped_and_why(stores: Stores) -> None:
    fill(stores, Shape())
    answer = ask(stores, {"kind": "prompts", "first": 0, "count": 3})
    assert isinstance(answer, PromptsAnswer)
    assert [row.cause for row in answer.rows] == [None, None, Cause.STALE]
    assert "9 steps old" in answer.rows[2].reason
    assert answer.next_sequence == 36


@pytest.mark.parametrize("step", [None, 5])
def test_a_rollout_has_tokens_with_their_versions_and_its_batch(
    stores: Stores, step: int | None
) -> None:
    fill(stores, Shape())
    name = ids.rollout_id(ids.task_id(ids.RunId("run1"), "train", 12), 1, 1)
    answer = rollout(stores, name, step=step)
    tokens = answer.tokens
    assert tokens.mask == [0] * 24 + [1] * 24
    assert tokens.advantages == [None] * 24 + [0.5] * 24
    assert tokens.versions == [None] * 24 + [3] * 12 + [4] * 12
    assert tokens.logprobs[:24] == [None] * 24
    assert answer.batch is not None
    assert (answer.batch.step, answer.fate) == (5, "It was trained in step 5.")
    later = rollout(stores, name, first_token=40).tokens
    assert (later.first, later.total, len(later.ids)) == (40, 48, 8)
    assert later.ids == tokens.ids[40:]


def test_texts_of_tokens_come_from_the_tokenizer(stores: Stores) -> None:
    fill(stores, Shape())
    vocabulary = {"Ġhi": 0, "Ã": 1, "©": 2, **{f"t{number}": number for number in range(3, 20)}}
    tokenizer = {
        "model": {"vocab": vocabulary},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 5, "content": "<|end|>"}],
    }
    stores.objects.put(f"{stores.objects.prefix}m/tokenizer.json", json.dumps(tokenizer).encode())
    uri = stores.objects.uri(f"{stores.objects.prefix}m")
    name = ids.rollout_id(ids.task_id(ids.RunId("run1"), "train", 0), 1, 0)
    answer = ask(stores, {"kind": "rollout", "rollout": name}, tokenizer=uri)
    assert isinstance(answer, RolloutAnswer)
    texts = dict(zip(answer.tokens.ids, answer.tokens.texts, strict=True))
    wanted = {0: " hi", 1: "\\xc3", 2: "\\xa9", 5: "<|end|>", 7: "t7"}
    assert wanted.items() & texts.items() == {each for each in wanted.items() if each[0] in texts}
    missing = ask(stores, {"kind": "rollout", "rollout": name}, tokenizer=f"{uri}-none")
    assert isinstance(missing, RolloutAnswer)
    assert missing.tokens.texts == []
    assert "cannot be read" in missing.tokenizer_problem


def test_a_search_goes_on_where_it_ended(stores: Stores) -> None:
    fill(stores, Shape(steps=20))
    query = {"kind": "search", "first": 3, "last": 18, "tool": "calc", "reward_min": 0.5}
    first = ask(stores, {**query, "most": 10})
    assert isinstance(first, SearchAnswer)
    assert first.next_last is not None
    rest = ask(stores, {**query, "last": first.next_last})
    assert isinstance(rest, SearchAnswer)
    steps = [hit.step for hit in (*first.hits, *rest.hits)]
    assert steps == [step for step in range(18, 2, -1) for _ in range(2)]
    assert rest.next_last is None


def test_a_search_goes_on_within_a_step(stores: Stores) -> None:
    fill(stores, Shape(steps=3, groups=6, members=3))
    query: dict[str, Any] = {"kind": "search", "most": 5, "skip": 0}
    whole = ask(stores, {"kind": "search", "most": 100})
    assert isinstance(whole, SearchAnswer)
    names: list[str] = []
    while query.get("last", 0) is not None:
        page = ask(stores, query)
        assert isinstance(page, SearchAnswer)
        assert len(page.hits) <= 5
        names += [hit.id for hit in page.hits]
        query |= {"last": page.next_last, "skip": page.next_skip}
    assert names == [hit.id for hit in whole.hits]
    assert len(names) == len(set(names)) == 3 * 6 * 3


def test_a_search_finds_text_whatever_its_case(stores: Stores) -> None:
    fill(stores, Shape())
    answer = ask(stores, {"kind": "search", "text": "#6.1"})
    assert isinstance(answer, SearchAnswer)
    assert [hit.id for hit in answer.hits] == ["run1.train.00000006.1.1"]
    nothing = ask(stores, {"kind": "search", "text": "no such text"})
    assert isinstance(nothing, SearchAnswer)
    assert (nothing.hits, nothing.read) == ([], 48)


def test_policies_come_in_pages_with_the_samplers_that_serve_them(stores: Stores) -> None:
    fill(stores, Shape(steps=130, rolled=2, epochs=(7, 9)))
    page = ask(stores, {"kind": "policies"})
    assert isinstance(page, PoliciesAnswer)
    assert [row.version for row in page.rows] == list(range(130, 30, -1))
    assert [row.serving for row in page.rows[:3]] == [1, 1, 0]
    rest = ask(stores, {"kind": "policies", "before": page.next_before})
    assert isinstance(rest, PoliciesAnswer)
    assert [row.version for row in rest.rows] == [30]


def test_a_summary_holds_evaluations_and_samplers(stores: Stores) -> None:
    fill(stores, Shape())
    answer = ask(stores, {"kind": "summary"})
    assert isinstance(answer, SummaryAnswer)
    assert [result.accuracy for result in answer.evaluations] == [0.1, 0.8]
    assert [sampler.alive for sampler in answer.samplers] == [True, True, False]
    assert answer.notices[0].reason == "StoreRestored"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300, b"[]", b"x"])
def test_a_report_that_no_trainer_wrote_is_refused(stores: Stores, body: bytes) -> None:
    fill(stores, Shape())
    stores.objects.put(reports.key(stores.run_prefix("run1"), reports.REPORT, epoch=7), body)
    with pytest.raises(IntegrityError, match=r"report\.json is not what a trainer writes"):
        ask(stores, {"kind": "report"})


def test_a_run_of_another_namespace_does_not_exist(stores: Stores) -> None:
    """Namespaces may share stores."""
    fill(stores, Shape(namespace="another"))
    for query in ({"kind": "summary"}, {"kind": "metrics"}, {"kind": "step", "step": 1}):
        assert ask(stores, query) == NotFound(missing=NO_RUN)


def test_a_rollout_of_another_run_does_not_exist(stores: Stores) -> None:
    fill(stores, Shape())
    fill(stores, Shape(name="run2", job="other"))
    answer = ask(stores, {"kind": "rollout", "rollout": "run2.train.00000000.1.0"})
    assert isinstance(answer, NotFound)


FIRST, OTHER = "run1.train.00000000.1.0", "run1.train.00000001.1.0"


def image(stores: Stores, content: bytes, *, of: str = FIRST) -> Answer:
    sha256 = hashlib.sha256(content).hexdigest()
    return ask(stores, {"kind": "image", "rollout": of, "sha256": sha256})


def named(stores: Stores, content: bytes) -> None:
    """Have the first rollout name a file of the run's images, as whoever may write can."""
    images = ImageStore(stores.objects, run_prefix=stores.run_prefix("run1"))
    sha256 = images.put(content)
    rollouts = stores.mongo.collection("rollouts")
    rollouts.update_one({"_id": FIRST}, {"$set": {"images.0.sha256": sha256}})


def test_a_rollout_s_images_are_those_of_its_prompt_and_of_its_tool_calls(stores: Stores) -> None:
    fill(stores, Shape(steps=2, screens=True))
    shown = rollout(stores, FIRST)
    assert [each.sha256 for each in shown.images] == [hashlib.sha256(screen(0)).hexdigest()]
    for content in (screen(0), screen(1)):
        answer = image(stores, content)
        assert isinstance(answer, ImageAnswer)
        assert (answer.file, answer.media_type) == (content, "image/png")


def test_no_image_is_read_that_the_rollout_does_not_name(stores: Stores) -> None:
    fill(stores, Shape(steps=2, screens=True))
    assert isinstance(image(stores, screen(2), of=OTHER), ImageAnswer)
    for content, of in ((screen(2), FIRST), (screen(0), OTHER), (b"{}", FIRST)):
        assert image(stores, content, of=of) == NotFound(
            missing=f"Rollout {of} shows no image {hashlib.sha256(content).hexdigest()}."
        )
    fill(stores, Shape(name="run2", job="other", steps=2, screens=True))
    assert isinstance(image(stores, screen(0), of=FIRST.replace("run1", "run2")), NotFound)
    for name in ("../../checkpoints/state", f"{64 * 'a'}/..", 64 * "A"):
        with pytest.raises(ValidationError):
            ask(stores, {"kind": "image", "rollout": FIRST, "sha256": name})


def test_a_file_that_is_no_image_is_refused_whatever_its_name(stores: Stores) -> None:
    fill(stores, Shape(steps=1, screens=True))
    for content in (b"<html><script>alert(1)</script>", b'<svg xmlns="x"/>', b"RIFF0000WAVEfmt "):
        named(stores, content)
        with pytest.raises(IntegrityError, match="no PNG, JPEG or WebP image"):
            image(stores, content)


def test_an_image_that_is_too_large_or_lost_says_so(stores: Stores) -> None:
    fill(stores, Shape(steps=1, screens=True))
    large = screen(0) + bytes(MOST_IMAGE_BYTES)
    named(stores, large)
    with pytest.raises(ObjectTooLargeError, match=f"more than the {MOST_IMAGE_BYTES}"):
        image(stores, large)
    named(stores, screen(5))
    stores.objects.delete_prefix(f"{stores.run_prefix('run1')}images/")
    assert isinstance(image(stores, screen(5)), NotFound)
