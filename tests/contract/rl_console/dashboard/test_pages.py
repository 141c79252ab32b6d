"""Every page of the dashboard, answered from the real stores, shows hostile text as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from rl_console.dashboard.app import application
from rl_console.dashboard.guard import POLICY, cookie_name
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.documents import results_of_one_name
from tests.samples.viewed_run import HOSTILE, Shape, fill, screen
from tests.samples.viewed_source import ViewedSource
from tests.servers import MinioServer, StoreServer, settings_of

KEY = "the-key"
BASE = "/n/ns/jobs/hostile"
PAGES = {
    "runs": "/",
    "runs of a namespace": "/n/ns?q=host&sort=reward",
    "run": BASE,
    "step": f"{BASE}/steps/5",
    "deleted step": f"{BASE}/steps/500",
    "prompts": f"{BASE}/prompts?first=0&dropped=1",
    "rollout": f"{BASE}/rollouts/run1.train.00000012.1.1?step=5",
    "later tokens": f"{BASE}/rollouts/run1.train.00000012.1.1?token=40",
    "search": f"{BASE}/search?text=%3Cscript&reward_min=0.5&first=2&last=9&tool=calc",
    "policies": f"{BASE}/policies",
    "pools": f"{BASE}/pools",
    "timeline": f"{BASE}/timeline",
    "compare": "/compare?run=ns/hostile&run=ns/plain",
}
DATA = {
    "metrics": f"{BASE}/metrics.json?columns=reward_mean,reward_parts.&points=5",
    "comparison": "/compare.json?run=ns/hostile&run=ns/plain",
}
BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def source(store_server: StoreServer, minio_server: MinioServer) -> Iterator[ViewedSource]:
    settings: StoreSettings = settings_of(store_server, minio_server)
    stores = Stores.connect(settings, patience_seconds=20)
    stores.mongo.ensure_indexes()
    stores.objects.make_bucket()
    made = ViewedSource(stores, text=HOSTILE)
    shapes = (
        Shape(job="hostile", hostile=True),
        Shape(name="run2", job="plain", steps=4, screens=True, evaluated=results_of_one_name(4)),
    )
    for shape in shapes:
        fill(stores, shape)
        made.add(shape)
    yield made
    stores.close()


@pytest.fixture
def browser(source: ViewedSource) -> TestClient:
    client = TestClient(application(source, key=KEY), base_url="http://127.0.0.1:1234")
    client.get(f"/?key={KEY}")
    return client


class Markup(HTMLParser):
    """Elements and attributes of a page, and its data block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._in_data = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_data = dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        self.data += data if self._in_data else ""


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_hostile_text_is_shown_as_text(browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    assert not BAD.search(answer.text)
    page = Markup(answer.text)
    for tag, attributes in page.elements:
        assert tag != "img"
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "script":
            assert str(attributes.get("src", "/static/")).startswith("/static/")
            assert "src" in attributes or attributes.get("type") == "application/json"
    if page.data:
        json.loads(page.data)


def test_pages_show_what_is_stored(browser: TestClient) -> None:
    rollout = browser.get(PAGES["rollout"]).text
    for part in ("It was trained in step 5.", "cdcdcd", "&lt;script&gt;alert(1)", "\\u202e"):
        assert part in rollout, part
    data = json.loads(Markup(rollout).data)
    assert data["advantages"][24:] == [0.5] * 24
    assert data["versions"][24:] == [3] * 12 + [4] * 12
    assert "9 steps old" in browser.get(PAGES["prompts"]).text
    assert browser.get(PAGES["search"]).text.count('class="card rollout"') == 16
    assert "not trained yet" in browser.get(PAGES["deleted step"]).text
    timeline = browser.get(PAGES["timeline"]).text
    for part in ("Attempt 1: Failed", "Pool hostile-main: 2 → 3", "SamplerLost", "LearningSignal"):
        assert part in timeline, part


def test_data_of_charts_hold_every_series(browser: TestClient) -> None:
    metrics = browser.get(DATA["metrics"]).json()
    assert set(metrics["series"]) == {
        "reward_mean",
        "reward_parts.exact",
        "reward_parts.format",
    }
    assert len(metrics["steps"]) == len(metrics["times"]) <= 5
    assert [len(each["steps"]) for each in browser.get(DATA["comparison"]).json()] == [12, 4]


def test_the_run_s_page_has_each_accuracy_by_source_split_and_temperature(
    browser: TestClient,
) -> None:
    page = json.loads(Markup(browser.get("/n/ns/jobs/plain").text).data)
    assert page["evaluations"] == {
        "steps": [0, 4],
        "lines": [
            {"label": "test (validation, temperature 1)", "values": [0.1, None]},
            {"label": "gsm8k (validation, temperature 0)", "values": [None, 0.9]},
            {"label": "gsm8k (validation, temperature 1)", "values": [None, 0.5]},
            {"label": "gsm8k (test, temperature 0)", "values": [None, 0.2]},
            {"label": "gsm8k (test, temperature 1)", "values": [None, 0.1]},
        ],
    }


@pytest.mark.parametrize(
    "path", [*PAGES.values(), *DATA.values(), f"{BASE}/live", "/static/app.css"]
)
def test_nothing_is_shown_without_the_key_or_under_another_name(
    source: ViewedSource, path: str
) -> None:
    app = application(source, key=KEY)
    stranger = TestClient(app, base_url="http://127.0.0.1:1234")
    assert stranger.get(path).status_code == 401
    guessed = "&key=guess" if "?" in path else "?key=guess"
    assert stranger.get(path + guessed).status_code == 401
    rebound = TestClient(app, base_url="http://evil.example:1234", cookies={cookie_name(KEY): KEY})
    assert rebound.get(path).status_code == 421


def test_the_key_leaves_the_address_and_becomes_a_cookie(source: ViewedSource) -> None:
    client = TestClient(application(source, key=KEY), base_url="http://127.0.0.1:1234")
    answer = client.get(f"{BASE}?key={KEY}&x=1", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{BASE}?x=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_nothing_can_be_changed(browser: TestClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert browser.request(method, BASE).status_code == 405


def test_answers_forbid_other_hosts_and_inline_scripts(browser: TestClient) -> None:
    for path in ("/", BASE, "/n/ns/jobs/absent", "/static/run.js", "/nothing"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/n/ns/jobs/absent", 404),
        (f"{BASE}/rollouts/run2.train.00000000.1.0", 404),
        (f"{BASE}/steps/0", 400),
        (f"{BASE}/prompts?first=-4", 400),
        (f"{BASE}/prompts?first=many", 400),
        (f"{BASE}/prompts?split=secret", 400),
        (f"{BASE}/search?reward_min=high", 400),
        (f"{BASE}/metrics.json?points=100000000", 400),
        ("/compare?run=ns", 400),
        ("/compare?" + "&".join(f"run=ns/{number}" for number in range(11)), 400),
        ("/nothing", 404),
    ],
)
def test_what_cannot_be_answered_is_said(browser: TestClient, path: str, status: int) -> None:
    answer = browser.get(path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


def test_a_live_page_gets_new_steps_and_the_state(
    source: ViewedSource, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_console.dashboard.live.MOST_SECONDS", 0.01)
    monkeypatch.setattr("rl_console.dashboard.live.SECONDS", 0.02)
    text = browser.get(f"{BASE}/live?after=10").text
    events: dict[str, Any] = dict(re.findall(r"event: (\w+)\nid: \d+\ndata: (.*)\n", text))
    assert json.loads(events["steps"])["steps"] == [11, 12]
    assert json.loads(events["state"])["phase"] == "Running"
    again = browser.get(f"{BASE}/live", headers={"Last-Event-ID": "12"}).text
    assert "event: steps" not in again


def test_a_line_of_ten_megabytes_is_cut(source: ViewedSource, browser: TestClient) -> None:
    source.text = "x" * (10 << 20)
    try:
        for path in (BASE, f"{BASE}/timeline", "/"):
            assert len(browser.get(path).text) < 300_000
    finally:
        source.text = HOSTILE


SEEING = "/n/ns/jobs/plain/rollouts/run2.train.00000001.1.0"


def test_a_rollout_shows_its_images_in_the_turn_in_which_they_came(browser: TestClient) -> None:
    shown = browser.get(SEEING).text
    images = [attributes for tag, attributes in Markup(shown).elements if tag == "img"]
    digests = [hashlib.sha256(screen(number)).hexdigest() for number in (2, 3)]
    assert [each["src"] for each in images] == [f"{SEEING}/images/{each}" for each in digests]
    for each, digest in zip(images, digests, strict=True):
        assert each["alt"] == f"Image of 448 × 280 pixels, SHA-256 {digest}"
    prompt, call = (shown.index(digest) for digest in digests)
    assert prompt < shown.index('aria-label="Response of turn 1"') < call
    assert "Shown before the response, tokens 2–6" in shown
    assert "From calculator" in shown


def test_an_image_is_sent_as_nothing_else(browser: TestClient) -> None:
    digest = hashlib.sha256(screen(2)).hexdigest()
    answer = browser.get(f"{SEEING}/images/{digest}")
    assert (answer.status_code, answer.content) == (200, screen(2))
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-disposition"] == "inline"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == POLICY
    assert "img-src 'self';" in POLICY
    other = hashlib.sha256(screen(0)).hexdigest()
    for name, status in ((other, 404), ("..%2f" * 3, 404), ("state", 400)):
        assert browser.get(f"{SEEING}/images/{name}").status_code == status
