"""Chromium walks every page of the dashboard, by mouse and keyboard, and axe finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_console.dashboard.app import application
from rl_contracts.documents.batch import BatchState
from rl_contracts.stores.connect import Stores
from tests.chaos.rl_console.walk import THEMES, check_page
from tests.network.chromium import Page, browsing
from tests.network.served import served
from tests.samples.documents import a_result, results_of_one_name
from tests.samples.viewed_run import HOSTILE, Shape, a_metric, fill
from tests.samples.viewed_source import ViewedSource
from tests.servers import MinioServer, StoreServer, settings_of

KEY = "walk"
RUN = "/n/ns/jobs/learns"
HOSTILE_RUN = "/n/ns/jobs/hostile"
PAGES = {
    "runs": "/",
    "run": RUN,
    "step": f"{RUN}/steps/300",
    "rollout": f"{RUN}/rollouts/run1.train.00000897.1.1?step=300",
    "rollout with images": "/n/ns/jobs/seeing/rollouts/run4.train.00000001.1.0",
    "prompts": f"{RUN}/prompts",
    "search": f"{RUN}/search?text=carry",
    "policies": f"{RUN}/policies",
    "pools": f"{RUN}/pools",
    "timeline": f"{RUN}/timeline",
    "compare": "/compare?run=ns/learns&run=ns/hostile",
    "finished": "/n/ns/jobs/finished",
    "hostile run": HOSTILE_RUN,
    "hostile step": f"{HOSTILE_RUN}/steps/5",
    "hostile rollout": f"{HOSTILE_RUN}/rollouts/run2.train.00000012.1.1",
    "hostile timeline": f"{HOSTILE_RUN}/timeline",
}
CHARTS = ("run", "finished", "hostile run", "compare")
RESULTS = [a_result(step, accuracy=0.5) for step in range(1, 45)] + results_of_one_name(45)
"""So many that their points are left out; those of the last step are alone on their lines."""
LARGE = Shape(job="learns", steps=300, rolled=6, groups=2, members=3, tokens=120, epochs=(7, 9))


@pytest.fixture(scope="module")
def source(store_server: StoreServer, minio_server: MinioServer) -> Iterator[ViewedSource]:
    stores = Stores.connect(settings_of(store_server, minio_server), patience_seconds=20)
    stores.mongo.ensure_indexes()
    stores.objects.make_bucket()
    made = ViewedSource(stores)
    for shape, phase in (
        (LARGE, "Running"),
        (Shape(job="hostile", name="run2", hostile=True), "Running"),
        (Shape(job="finished", name="run3", steps=40, rolled=2, evaluated=RESULTS), "Succeeded"),
        (Shape(job="seeing", name="run4", steps=2, screens=True), "Running"),
    ):
        fill(stores, shape)
        made.add(shape, phase=phase)
    yield made
    stores.close()


@pytest.fixture(scope="module")
def address(source: ViewedSource) -> Iterator[str]:
    with served(application(source, key=KEY)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def chromium(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        page.open(f"{address}/?key={KEY}")
        yield page


def visit(page: Page, address: str, name: str) -> None:
    page.complaints.clear()
    page.open(address + PAGES[name])
    if name in CHARTS:
        page.until("document.querySelector('.u-legend')")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_every_width_and_has_no_barrier(
    chromium: Page, address: str, name: str, theme: str, tmp_path: Path
) -> None:
    check_page(chromium, name, theme, tmp_path, lambda: visit(chromium, address, name))


def test_hostile_text_runs_nothing(chromium: Page, address: str, source: ViewedSource) -> None:
    source.text = HOSTILE
    try:
        for name in PAGES:
            visit(chromium, address, name)
            own = 2 if name == "rollout with images" else 0
            assert chromium.evaluate("document.querySelectorAll('main img').length") == own
            assert chromium.complaints == [], name
    finally:
        source.text = ""


def test_a_drag_zooms_all_charts_and_the_address_says_where(chromium: Page, address: str) -> None:
    chromium.look(width=1440, theme="light")
    visit(chromium, address, "run")
    box = chromium.evaluate(
        "(() => { const { left, top, width, height } = document.querySelector('.u-over')"
        ".getBoundingClientRect(); return { left, top, width, height }; })()"
    )
    middle = box["top"] + box["height"] / 2
    chromium.drag(box["left"] + box["width"] * 0.25, box["left"] + box["width"] * 0.5, middle)
    chromium.until("location.hash.startsWith('#steps=')")
    range_text = chromium.evaluate("document.getElementById('range').textContent")
    first, last = map(int, chromium.evaluate("location.hash").removeprefix("#steps=").split("-"))
    assert 60 <= first <= 90
    assert 140 <= last <= 160
    assert f"steps {first} to {last}" in range_text
    chromium.open(f"{address}{RUN}#steps=10-20")
    chromium.open(f"{address}/")
    chromium.open(f"{address}{RUN}#steps=10-20")
    chromium.until("document.getElementById('range').textContent.includes('steps 10 to 20')")
    chromium.evaluate("document.getElementById('reset').click()")
    chromium.until("document.getElementById('range').textContent.includes('300')")


def test_each_accuracy_is_shown_by_source_split_and_temperature(
    chromium: Page, address: str
) -> None:
    visit(chromium, address, "finished")
    chromium.until("document.querySelector('#evaluations .u-legend')")
    chart = "document.querySelector('#evaluations .plot')"
    last = chromium.evaluate(f"{chart}.getAttribute('aria-label')").partition("Last values: ")[2]
    assert last == (
        "test (validation, temperature 1) 0.5, "
        "gsm8k (validation, temperature 0) 0.9, gsm8k (validation, temperature 1) 0.5, "
        "gsm8k (test, temperature 0) 0.2, gsm8k (test, temperature 1) 0.1."
    )
    points = f"{chart}.plot.series.slice(1).map(line => line.points.show({chart}.plot, 1, 0, 45))"
    assert chromium.evaluate(points) == [False, True, True, True, True]


def test_the_keyboard_opens_a_step_from_a_chart(chromium: Page, address: str) -> None:
    visit(chromium, address, "run")
    chromium.evaluate("document.querySelector('.plot').focus()")
    for key in ("End", "ArrowLeft", "Enter"):
        chromium.press(key)
    chromium.until("location.pathname.endsWith('/steps/299')")


def test_the_keyboard_moves_from_token_to_token_and_the_address_follows(
    chromium: Page, address: str
) -> None:
    visit(chromium, address, "rollout")
    chromium.evaluate("document.getElementById('tokens').focus()")
    for key in ("End", "ArrowLeft"):
        chromium.press(key)
    chromium.until("document.getElementById('token').textContent.startsWith('token 118')")
    assert chromium.evaluate("location.hash") == "#t=118&c=logprob"
    token_text = chromium.evaluate("document.getElementById('token').textContent")
    for part in ("generated", "log-probability", "advantage 0.5", "policy version 299"):
        assert part in token_text


def test_a_live_run_shows_a_step_as_soon_as_it_is_trained(
    chromium: Page, address: str, source: ViewedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_console.dashboard.live.SECONDS", 0.2)
    visit(chromium, address, "run")
    chromium.until("document.getElementById('live').textContent === 'live'")
    stores = source.stores
    run = stores.runs.require("run1")
    metrics = a_metric(301, of=301, epoch=run.epoch)
    assert run.head_batch is not None
    head = stores.batches.get([run.head_batch])[run.head_batch]
    batch = head.model_copy(
        update={
            "id": f"run1.batch.00000301.{run.epoch}",
            "step": 301,
            "parent": head.id,
            "state": BatchState.FORMED,
        }
    )
    stores.batches.put([batch])
    stores.runs.commit_step(
        "run1", epoch=run.epoch, head_batch=batch.id, latest=metrics, totals=run.totals
    )
    chromium.until("document.getElementById('range').textContent.includes('to 301')")


@pytest.mark.parametrize("width", [390, 1440])
def test_images_of_a_rollout_are_seen_whole(
    chromium: Page, address: str, width: int, tmp_path: Path
) -> None:
    chromium.look(width=width, theme="light")
    visit(chromium, address, "rollout with images")
    for place in (0, 1):
        chromium.evaluate(f"document.images[{place}].scrollIntoView()")
        chromium.until(f"document.images[{place}].complete")
        wide, high, left, right = chromium.evaluate(
            f"[document.images[{place}]].map(image => [image.naturalWidth, image.naturalHeight,"
            "image.getBoundingClientRect().left, image.getBoundingClientRect().right])[0]"
        )
        assert (wide, high) == (448, 280)
        assert 0 <= left < right <= width
        assert right - left >= min(448, width) * 0.8
    chromium.screenshot(tmp_path / f"images-{width}.png")
    assert chromium.complaints == []
