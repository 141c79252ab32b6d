"""What commands show of a run's data, answered from real stores: hostile text is shown as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator

import pytest

from rl_console.actions.reporting import read
from rl_console.actions.run_data.batch_text import batch_of_step
from rl_console.actions.run_data.policy_table import compared_policies, one_policy, policy_listing
from rl_console.actions.run_data.trajectory_table import found_trajectories
from rl_console.actions.run_data.trajectory_text import one_trajectory
from rl_console.errors import NotFoundError
from rl_console.output import Output, Shown, document, show_data
from rl_console.queries.run_data import RunData
from rl_contracts.documents.task import Cause
from rl_contracts.queries.kinds import SearchQuery
from rl_contracts.stores import reports
from rl_contracts.stores.connect import Stores
from tests.samples.documents import results_of_one_name
from tests.samples.viewed_run import Shape, fill, screen
from tests.samples.viewed_source import ViewedSource
from tests.servers import MinioServer, StoreServer, settings_of

BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NAME = "train.00000012.1.1"
MANY = Shape(name="run3", job="many", steps=3, groups=20)
MEASURED = Shape(name="run4", job="measured", steps=3, evaluated=results_of_one_name(2))
"""Version 3 has these results, and version 1 another one."""


@pytest.fixture(scope="module")
def source(store_server: StoreServer, minio_server: MinioServer) -> Iterator[ViewedSource]:
    stores = Stores.connect(settings_of(store_server, minio_server), patience_seconds=20)
    stores.mongo.ensure_indexes()
    stores.objects.make_bucket()
    made = ViewedSource(stores)
    shapes = (Shape(job="hostile", hostile=True), Shape(name="run2", job="plain"), MANY, MEASURED)
    for shape in shapes:
        fill(stores, shape)
        made.add(shape)
    yield made
    stores.close()


def search(data: RunData, output: Output = Output.TABLE) -> Shown:
    return found_trajectories(data, SearchQuery(), most=20, seconds=60, output=output)


def trajectory(data: RunData) -> Shown:
    return one_trajectory(data, NAME, step=None, tokens=True, first_token=0, wide=True)


SHOWN: dict[str, Callable[[RunData], Shown]] = {
    "search": search,
    "trajectory": trajectory,
    "batch": lambda data: batch_of_step(data, 5, output=Output.TABLE),
    "policies": lambda data: policy_listing(data, before=None, most=20, wide=True),
    "policy": lambda data: one_policy(data, 11),
    "two policies": lambda data: compared_policies(data, 6, 11),
}


@pytest.mark.parametrize("name", SHOWN)
def test_hostile_text_is_shown_as_text(
    source: ViewedSource, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = SHOWN[name](RunData(source, "ns", "hostile"))
    for output in Output:
        show_data(shown, output)
        printed = capsys.readouterr()
        assert printed.out, output
        assert not BAD.search(printed.out + printed.err), output
    if name in ("search", "trajectory", "batch"):
        assert "<script>alert(1)</script>" in shown.text
        assert "\\x1b[31mred" in shown.text


@pytest.mark.parametrize("name", SHOWN)
def test_every_table_fits_a_terminal_and_cuts_no_number(
    source: ViewedSource, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("trajectory_table", "batch_text", "policy_table", "token_table"):
        monkeypatch.setattr(f"rl_console.actions.run_data.{module}.width", lambda: 80)
    if name == "policies":
        shown = policy_listing(RunData(source, "ns", "plain"), before=None, most=20, wide=False)
    else:
        shown = SHOWN[name](RunData(source, "ns", "plain"))
    headings = r" *(SCORER|TOKEN|TRAJECTORY|DROPPED|VERSION) "
    tables = [part for part in shown.text.split("\n\n") if re.match(headings, part)]
    assert tables or name == "policy"
    for line in "\n".join(tables).splitlines():
        assert len(line) <= 80, line


def test_a_trajectory_says_everything_that_is_stored(source: ViewedSource) -> None:
    text = trajectory(RunData(source, "ns", "plain")).text
    for part in (
        "It was trained in step 5.",
        "cdcd" * 16,
        "advantage:     0.5, loss weight 1",
        "3 for tokens 24 to 35, 4 for tokens 36 to 47",
        "exact       1       1",
        "call calculator: failed, 0.2 s",
        "log-prob gap:",
    ):
        assert part in text, part
    rows = text.rpartition("TOKEN ")[2].splitlines()[1:]
    assert len(rows) == 48
    assert [row.split()[2] for row in rows] == ["masked"] * 24 + ["policy"] * 24
    assert [row.split()[3] for row in rows[24:]] == ["3"] * 12 + ["4"] * 12


def test_a_batch_is_read_whole_with_the_groups_that_were_dropped_beside_it(
    source: ViewedSource,
) -> None:
    batch = RunData(source, "ns", "many").batch(2)
    assert len(batch.step.rows) == batch.step.groups == MANY.groups
    assert sum(len(group.rollouts) for group in batch.step.rows) == MANY.groups * MANY.members
    assert [(group.sequence, group.cause) for group in batch.dropped] == [(41, Cause.STALE)]
    newest = RunData(source, "ns", "many").batch(3)
    assert [group.sequence for group in newest.dropped] == [62]
    shown = batch_of_step(RunData(source, "ns", "many"), 2, output=Output.TABLE).text
    assert re.search(r"41  stale +1  Its oldest token was 9 steps old", shown)


def test_prompts_that_were_not_looked_through_are_said(
    source: ViewedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_console.queries.run_data.MOST_POSITIONS", 5)
    data = RunData(source, "ns", "many")
    step, batch = data.batch(2).step, batch_of_step(data, 2, output=Output.TABLE)
    unseen = f"prompts {step.first_prompt + 5} to {step.end_prompt - 1} were not looked through"
    assert [note.startswith(unseen) for note in batch.notes] == [True]
    assert batch.values["unseen_prompts"] == step.end_prompt - step.first_prompt - 5


def test_a_search_goes_on_until_it_has_enough_or_the_range_is_over(source: ViewedSource) -> None:
    data = RunData(source, "ns", "many")
    everything = data.trajectories(SearchQuery(), most=1000, seconds=60)
    assert (len(everything.hits), everything.next_last) == (3 * 40, None)
    some = data.trajectories(SearchQuery(), most=1, seconds=60)
    assert (len(some.hits), some.next_last, some.next_skip) == (1, 3, 1)
    names = [each.id for each in some.hits]
    while some.next_last is not None:
        query = SearchQuery(last=some.next_last, skip=some.next_skip)
        some = data.trajectories(query, most=7, seconds=60)
        names += [each.id for each in some.hits]
    assert names == [each.id for each in everything.hits]
    hurried = data.trajectories(SearchQuery(text="never said"), most=1, seconds=0)
    assert hurried.hits == []


def test_a_search_says_what_it_left_out_and_where_to_go_on(source: ViewedSource) -> None:
    query, data = SearchQuery(first=2), RunData(source, "ns", "many")
    shown = found_trajectories(data, query, most=1, seconds=60, output=Output.TABLE)
    assert (shown.values["next_last"], shown.values["next_skip"]) == (3, 1)
    assert shown.notes[0].endswith("Go on with --steps 2-3 --skip 1")
    query = SearchQuery(first=2, last=2)
    shown = found_trajectories(data, query, most=40, seconds=60, output=Output.TABLE)
    assert shown.notes == []


def test_names_lead_to_the_same_trajectory_with_and_without_the_run(source: ViewedSource) -> None:
    data = RunData(source, "ns", "plain")
    assert data.trajectory(NAME).row == data.trajectory(f"run2.{NAME}").row
    with pytest.raises(NotFoundError, match=r"run2\.run1\.train.* is not in the store"):
        data.trajectory(f"run1.{NAME}")


def test_a_report_has_evaluations_curve_and_what_the_trainer_wrote(source: ViewedSource) -> None:
    prefix = source.stores.run_prefix("run2")
    key = reports.key(prefix, reports.REPORT, epoch=7)
    source.stores.objects.put(key, b'{"run": "run2", "accuracyAfter": 0.8}')
    data = RunData(source, "ns", "plain")
    assert data.report() == {"run": "run2", "accuracyAfter": 0.8}
    assert RunData(source, "ns", "many").report() is None
    known = read(data)
    assert [each.accuracy for each in known.evaluations] == [0.1, 0.8]
    assert known.metrics is not None
    assert known.metrics.steps == list(range(1, 13))
    assert len(known.metrics.series["reward_mean"].mean) == 12


def test_a_version_that_is_not_published_names_the_command_that_lists_them(
    source: ViewedSource,
) -> None:
    data = RunData(source, "ns", "plain", "-n ns --context c")
    with pytest.raises(NotFoundError, match=r"`kubectl rl policies plain -n ns --context c` lists"):
        one_policy(data, 999)


def test_a_policy_has_each_accuracy_by_source_split_and_temperature(source: ViewedSource) -> None:
    data = RunData(source, "ns", "measured")
    shown = re.findall(r"^accuracy, (.*): +(\S+)$", one_policy(data, 3).text, re.MULTILINE)
    assert shown == [
        ("gsm8k (validation, temperature 0)", "0.9"),
        ("gsm8k (validation, temperature 1)", "0.5"),
        ("gsm8k (test, temperature 0)", "0.2"),
        ("gsm8k (test, temperature 1)", "0.1"),
    ]
    both = compared_policies(data, 1, 3).text
    assert re.search(r"^accuracy, test \(validation, temperature 1\) +0\.1 +-$", both, re.MULTILINE)
    assert re.search(r"^accuracy, gsm8k \(test, temperature 0\) +- +0\.2$", both, re.MULTILINE)


def test_what_is_long_is_cut_and_says_so(source: ViewedSource) -> None:
    shown = search(RunData(source, "ns", "plain"))
    assert max(map(len, shown.text.splitlines())) < 300
    assert "more down to step" not in document(shown.values, Output.JSON)


def test_a_trajectory_names_its_images_in_the_turn_in_which_they_came(source: ViewedSource) -> None:
    shape = Shape(name="run4", job="seeing", steps=1, screens=True)
    fill(source.stores, shape)
    source.add(shape)
    name = "train.00000000.1.0"
    data = RunData(source, "ns", "seeing")
    text = one_trajectory(data, name, step=None, tokens=False, first_token=0, wide=False).text
    prompt, result = (hashlib.sha256(screen(number)).hexdigest() for number in (0, 1))
    assert f"\n  shown image 448 x 280, sha256 {prompt}\n" in text
    assert text.index("TURN 1") < text.index(prompt) < text.index("  call calculator")
    assert text.endswith(f"\n    image 448 x 280, sha256 {result}")
    assert data.image(name, result).file == screen(1)
