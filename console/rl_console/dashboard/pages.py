"""What each page shows. Everything is read; nothing is changed."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from rl_console.dashboard.addresses import chosen, integer, place, real
from rl_console.dashboard.jobs import JobRow, job_row, marks, pools_of
from rl_console.dashboard.panels import COLUMNS, COMPARED, MOST_COMPARED, PANELS
from rl_console.dashboard.token_view import token_data
from rl_console.errors import ConsoleError, NotAllowedError, NotLoggedInError, UsageError
from rl_console.queries.run_data import RunData
from rl_console.queries.source import Source, answer
from rl_console.queries.turn_images import by_turn
from rl_console.view import ENDED_PHASES
from rl_contracts.documents.evaluation import accuracy_curves
from rl_contracts.queries.answers import (
    PromptsAnswer,
    RolloutAnswer,
    SearchAnswer,
    StepAnswer,
    SummaryAnswer,
)
from rl_contracts.queries.kinds import (
    GROUPS_PER_PAGE,
    PROMPTS_PER_PAGE,
    MetricsQuery,
    PromptsQuery,
    RolloutQuery,
    SearchQuery,
    StepQuery,
)

RUNS_PER_PAGE = 100
TOKENS_PER_PAGE = 4096
SORTS = {
    "started": lambda row: -row.started,
    "name": lambda row: (row.namespace, row.name),
    "reward": lambda row: -(row.reward if row.reward is not None else -math.inf),
    "phase": lambda row: row.phase,
}


class Pages:
    """Renders pages from a viewer's source. Each handler runs in a thread of its own."""

    def __init__(
        self, source: Source, templates: Environment, *, namespace: str, viewer: str = ""
    ) -> None:
        self._source, self._templates, self._namespace = source, templates, namespace
        self._viewer = viewer

    def runs(self, request: Request) -> Response:
        """All runs of a namespace, or of all."""
        namespace = request.path_params.get("namespace", self._namespace)
        if named := request.query_params.get("namespace", "").strip():
            return RedirectResponse(f"/n/{quote(named, safe='')}", 303)
        if request.query_params.get("all"):
            namespace = ""
        sort = request.query_params.get("sort", "started")
        wanted = request.query_params.get("q", "")[:200]
        try:
            rows = [job_row(raw) for raw in self._source.jobs(namespace)]
        except NotLoggedInError:
            raise
        except NotAllowedError:
            if namespace:
                raise
            return self._page("namespace.html", title="Which namespace?", crumbs=[])
        shown = [
            row for row in rows if wanted.casefold() in f"{row.namespace}/{row.name}".casefold()
        ]
        shown.sort(key=SORTS.get(sort, SORTS["started"]))
        first = integer(request, "first", 0)
        page = shown[first : first + RUNS_PER_PAGE]
        return self._page(
            "runs.html",
            title="Runs",
            crumbs=[],
            rows=page,
            total=len(shown),
            first=first,
            next_first=first + RUNS_PER_PAGE if first + RUNS_PER_PAGE < len(shown) else None,
            namespace=namespace,
            wanted=wanted,
            sort=sort,
            sorts=list(SORTS),
        )

    def run(self, request: Request) -> Response:
        """One run: state, charts, and what happened beside them."""
        namespace, job, raw, row = self._job(request)
        summary, problem = self._summary(namespace, job)
        happened = self._marks(namespace, job, raw)
        return self._job_page(
            "run.html",
            row,
            summary=summary,
            problem=problem,
            panels=PANELS,
            chart_data={
                "url": f"/n/{namespace}/jobs/{job}/metrics.json",
                "live": f"/n/{namespace}/jobs/{job}/live",
                "steps": f"/n/{namespace}/jobs/{job}/steps/",
                "columns": COLUMNS,
                "panels": [
                    {"title": each.title, "columns": each.columns, "unit": each.unit}
                    for each in PANELS
                ],
                "marks": [each.plain() for each in happened],
                "evaluations": _accuracies(summary),
                "finished": row.phase in ENDED_PHASES,
            },
        )

    def metrics(self, request: Request) -> Response:
        """Step metrics as JSON."""
        columns = request.query_params.get("columns")
        query = MetricsQuery(
            columns=tuple(columns.split(",")) if columns else COLUMNS,
            first=integer(request, "first", 0),
            last=integer(request, "last", None),
            points=integer(request, "points", 600),
        )
        given = RunData(self._source, *place(request)).metrics(query)
        return Response(given.model_dump_json(), media_type="application/json")

    def compare(self, request: Request) -> Response:
        """Curves of several runs in the same charts."""
        rows = [job_row(self._source.job(*run)) for run in chosen(request)]
        query = "&".join(f"run={row.namespace}/{row.name}" for row in rows)
        return self._page(
            "compare.html",
            title="Compare runs",
            crumbs=[],
            rows=rows,
            most=MOST_COMPARED,
            columns=COMPARED,
            chart_data={"url": f"/compare.json?{query}", "columns": COMPARED},
        )

    def compare_data(self, request: Request) -> Response:
        """Metrics of several runs as JSON."""
        answers = []
        for namespace, job in chosen(request):
            query = MetricsQuery(columns=COMPARED, points=400)
            try:
                given = RunData(self._source, namespace, job).metrics(query)
            except ConsoleError as error:
                answers.append({"run": f"{namespace}/{job}", "problem": str(error)})
                continue
            answers.append({"run": f"{namespace}/{job}", **given.model_dump()})
        return JSONResponse(answers)

    def step(self, request: Request) -> Response:
        """The groups of a step, side by side."""
        namespace, job, _, row = self._job(request)
        step = request.path_params["step"]
        if step < 1:
            raise UsageError("steps count from 1")
        first = integer(request, "group", 0)
        query = StepQuery(step=step, first_group=first)
        given = answer(self._source, namespace, job, query, StepAnswer)
        following = first + GROUPS_PER_PAGE
        return self._job_page(
            "step.html",
            row,
            here=f"Step {step}",
            step=given,
            next_group=following if following < given.groups else None,
            previous_group=max(0, first - GROUPS_PER_PAGE) if first else None,
        )

    def prompts(self, request: Request) -> Response:
        """Prompts in the order of the stream, also those whose group was dropped."""
        namespace, job, _, row = self._job(request)
        first = integer(request, "first", None)
        split = request.query_params.get("split", "train")
        query = PromptsQuery(first=first or 0, split=split)
        given = answer(self._source, namespace, job, query, PromptsAnswer)
        if first is None and given.next_sequence > PROMPTS_PER_PAGE and split == "train":
            query = PromptsQuery(first=given.next_sequence - PROMPTS_PER_PAGE, split="train")
            given = answer(self._source, namespace, job, query, PromptsAnswer)
        return self._job_page(
            "prompts.html",
            row,
            here="Prompts",
            prompts=given,
            split=split,
            per_page=PROMPTS_PER_PAGE,
            dropped=request.query_params.get("dropped") == "1",
        )

    def rollout(self, request: Request) -> Response:
        """A trajectory by turn, tool call and token."""
        namespace, job, _, row = self._job(request)
        query = RolloutQuery(
            rollout=request.path_params["rollout"],
            step=integer(request, "step", None),
            first_token=integer(request, "token", 0),
        )
        given = answer(self._source, namespace, job, query, RolloutAnswer)
        tokens, following = token_data(given, most=TOKENS_PER_PAGE)
        return self._job_page(
            "rollout.html",
            row,
            here=f"Rollout {given.row.id.partition('.')[2]}",
            rollout=given,
            turns=by_turn(given),
            token_data=tokens,
            next_token=following,
            previous_token=max(0, given.tokens.first - TOKENS_PER_PAGE)
            if given.tokens.first
            else None,
        )

    def image(self, request: Request) -> Response:
        """An image of a trajectory, as it is stored; its type is that of its first bytes."""
        given = RunData(self._source, *place(request)).image(
            request.path_params["rollout"], request.path_params["sha256"]
        )
        shown = {"Content-Disposition": "inline"}
        return Response(given.file, media_type=given.media_type, headers=shown)

    def search(self, request: Request) -> Response:
        """Trajectories that meet conditions."""
        namespace, job, _, row = self._job(request)
        parameters = request.query_params
        query = SearchQuery(
            first=integer(request, "first", 0),
            last=integer(request, "last", None),
            text=parameters.get("text", ""),
            tool=parameters.get("tool", ""),
            reward_min=real(request, "reward_min"),
            reward_max=real(request, "reward_max"),
            stop_reason=parameters.get("stop_reason") or None,
            errors=parameters.get("errors") == "1",
            skip=integer(request, "skip", 0),
        )
        given = answer(self._source, namespace, job, query, SearchAnswer)
        following = ""
        if given.next_last is not None:
            place = {"last": given.next_last, "skip": given.next_skip}
            following = str(request.url.include_query_params(**place).query)
        return self._job_page(
            "search.html", row, here="Search", search=given, query=query, following=following
        )

    def policies(self, request: Request) -> Response:
        """Published versions, and the samplers that serve each."""
        namespace, job, _, row = self._job(request)
        before = integer(request, "before", None)
        given = RunData(self._source, namespace, job).policies(before=before)
        return self._job_page("policies.html", row, here="Policies", policies=given)

    def pools(self, request: Request) -> Response:
        """Pools and samplers with their load."""
        namespace, job, _, row = self._job(request)
        summary, problem = self._summary(namespace, job)
        pools = pools_of(self._source.pools(namespace), job)
        return self._job_page(
            "pools.html", row, here="Pools", pools=pools, summary=summary, problem=problem
        )

    def timeline(self, request: Request) -> Response:
        """Conditions, events, attempts and scalings in the order of time."""
        namespace, job, raw, row = self._job(request)
        happened = self._marks(namespace, job, raw)
        conditions = (raw.get("status") or {}).get("conditions") or []
        return self._job_page(
            "timeline.html", row, here="Timeline", marks=happened[::-1], conditions=conditions
        )

    def _job(self, request: Request) -> tuple[str, str, dict[str, Any], JobRow]:
        namespace, job = place(request)
        raw = self._source.job(namespace, job)
        return namespace, job, raw, job_row(raw)

    def _summary(self, namespace: str, job: str) -> tuple[SummaryAnswer | None, str]:
        """The run's documents; without them a page still shows what Kubernetes has."""
        try:
            return RunData(self._source, namespace, job).summary(), ""
        except ConsoleError as error:
            return None, str(error)

    def _marks(self, namespace: str, job: str, raw: dict[str, Any]) -> list[Any]:
        try:
            pools = pools_of(self._source.pools(namespace), job)
        except ConsoleError:
            pools = []
        return marks(raw, pools, self._source.events(namespace, job))

    def _job_page(self, template: str, row: JobRow, *, here: str = "", **values: Any) -> Response:
        base = f"/n/{row.namespace}/jobs/{row.name}"
        crumbs = [(row.namespace, f"/n/{row.namespace}"), (row.name, base)]
        title = f"{here} – {row.name}" if here else row.name
        values |= {"row": row, "base": base, "here": here}
        return self._page(template, title=title, crumbs=crumbs, **values)

    def _page(self, template: str, **values: Any) -> HTMLResponse:
        shown = self._templates.get_template(template).render(viewer=self._viewer, **values)
        return HTMLResponse(shown)


def _accuracies(summary: SummaryAnswer | None) -> dict[str, Any]:
    curves = accuracy_curves(summary.evaluations if summary else [])
    steps = sorted({step for curve in curves.values() for step in curve})
    lines = [
        {"label": label, "values": [curve.get(step) for step in steps]}
        for label, curve in curves.items()
    ]
    return {"steps": steps, "lines": lines}
