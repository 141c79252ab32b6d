// The charts of one run: loads metrics, zooms, and adds steps as they are trained.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const places = page.panels.map((panel, index) => document.querySelector(`[data-panel="${index}"] .plot`));
  const POINTS = Math.min(1000, Math.max(200, Math.round((places[0].clientWidth || 400) * devicePixelRatio)));
  let metrics = null, range = null, pending = 0;

  const axis = () => document.querySelector("input[name=axis]:checked").value;
  const xs = () => (axis() === "time" ? metrics.times : metrics.steps);

  // Where on the axis a moment is: its time, or the step that was the newest then.
  function at(time) {
    if (axis() === "time") return time;
    const { times, steps } = metrics;
    if (!times.length || time < times[0]) return steps[0] ?? 0;
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= time) low = middle; else high = middle - 1;
    }
    return steps[low];
  }

  const shownMarks = () => ($("marks").checked ? page.marks.map((mark) => ({ ...mark, x: at(mark.time) })) : []);

  function linesOf(panel) {
    const names = Object.keys(metrics.series).filter((name) =>
      panel.columns.some((column) => name === column || (column.endsWith(".") && name.startsWith(column))));
    return names.map((name, index) => ({
      label: name.split(".").pop().replaceAll("_", " "), colour: Plots.colour(index),
      values: metrics.series[name].mean, low: metrics.series[name].low, high: metrics.series[name].high,
    }));
  }

  function drawAll() {
    $("empty").hidden = metrics.rows > 0;
    const marks = shownMarks();
    page.panels.forEach((panel, index) => {
      const lines = linesOf(panel), section = places[index].closest("section");
      section.hidden = !lines.length || !metrics.rows;
      if (section.hidden) return;
      Plots.draw(places[index], {
        x: xs(), lines, time: axis() === "time", band: $("band").checked, marks: () => marks, sync: "run", title: panel.title,
        zoomed: (left, right) => load({ first: left > 0 ? metrics.steps[left - 1] + 1 : metrics.steps[0], last: metrics.steps[right] }),
      });
    });
    drawEvaluations(marks);
    const kinds = Plots.KINDS.filter((kind) => marks.some((mark) => mark.kind === kind));
    $("legend").replaceChildren(...kinds.map((kind) => {
      const item = document.createElement("li"), found = marks.filter((mark) => mark.kind === kind);
      item.className = `mark-${kind}`;
      item.textContent = `${kind} (${found.length})`;
      item.title = found.slice(-8).map((mark) => `${Plots.moment(mark.time)} ${mark.title}`).join("\n");
      return item;
    }));
    $("reset").disabled = !range;
    const { steps, rows } = metrics;
    $("range").textContent = rows ? `steps ${range ? range.first : metrics.first} to ${steps.at(-1)}, ${rows} in ${steps.length} points` : "";
  }

  function drawEvaluations(marks) {
    const section = $("evaluations"), place = section.querySelector(".plot");
    const { steps } = page.evaluations;
    section.hidden = !steps.length;
    if (section.hidden) return;
    const lines = page.evaluations.lines.map((line, index) => ({ ...line, colour: Plots.colour(index) }));
    Plots.draw(place, { x: steps, lines, time: false, title: "Held-out accuracy", sync: "evaluations" });
  }

  async function load(wanted) {
    const number = ++pending;
    const query = new URLSearchParams({ points: POINTS });
    if (wanted) { query.set("first", wanted.first); query.set("last", wanted.last); }
    const answer = await fetch(`${page.url}?${query}`);
    const given = await answer.json();
    if (number !== pending) return;
    if (!answer.ok) { $("range").textContent = given.problem; return; }
    range = wanted ?? null;
    metrics = given;
    history.replaceState(null, "", range ? `#steps=${range.first}-${range.last}` : location.pathname);
    drawAll();
    performance.mark("charts");
  }

  function extend(more) {
    if (!metrics || range || !more.steps.length) return;
    if (metrics.steps.length + more.steps.length > 2 * POINTS || !metrics.rows) { load(null); return; }
    const count = metrics.steps.length;
    metrics.steps.push(...more.steps);
    metrics.times.push(...more.times);
    metrics.rows += more.rows;
    for (const name of new Set([...Object.keys(metrics.series), ...Object.keys(more.series)])) {
      const old = (metrics.series[name] ??= { mean: Array(count).fill(null), low: [], high: [] });
      const mean = more.series[name]?.mean ?? Array(more.steps.length).fill(null);
      if (old.low.length) { old.low.push(...mean); old.high.push(...mean); }
      old.mean.push(...mean);
    }
    drawAll();
  }

  function follow() {
    const stream = new EventSource(`${page.live}?after=${metrics.last}`);
    stream.addEventListener("open", () => { $("live").textContent = "live"; });
    stream.addEventListener("error", () => { $("live").textContent = "not connected"; });
    stream.addEventListener("problem", (event) => { $("live").textContent = JSON.parse(event.data).problem; });
    stream.addEventListener("steps", (event) => extend(JSON.parse(event.data)));
    stream.addEventListener("state", (event) => {
      const row = JSON.parse(event.data);
      $("live").textContent = "live";
      $("step").textContent = `${row.step} / ${row.steps || "?"}`;
      $("reward").textContent = Plots.short(row.reward);
      $("tokens").textContent = Plots.short(row.tokens_per_second);
      const shown = $("phase").querySelector(".phase");
      shown.textContent = row.phase;
      shown.className = `phase phase-${row.phase.toLowerCase()}`;
    });
    addEventListener("pagehide", () => stream.close());
  }

  places.forEach((place) => Plots.keyboard(place, (index) => { location.href = page.steps + metrics.steps[index]; }));
  document.querySelectorAll("input[name=axis], #marks, #band").forEach((input) => input.addEventListener("change", () => metrics && drawAll()));
  $("reset").addEventListener("click", () => load(null));
  addEventListener("theme", () => metrics && drawAll());
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => metrics && drawAll(), 150); });
  const linked = /^#steps=(\d+)-(\d+)$/.exec(location.hash);
  load(linked ? { first: Number(linked[1]), last: Number(linked[2]) } : null).then(() => { if (!page.finished && metrics) follow(); });
})();
