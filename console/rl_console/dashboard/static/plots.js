// Charts: one uPlot for each panel, with a cursor and a zoom that all of them share.
"use strict";
const Plots = (() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (index) => style(`--line-${index % 10}`);
  const KINDS = ["incident", "attempt", "suspension", "scaling", "notice", "condition", "event"];
  const HEIGHT = 180;

  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  };
  const tick = (value) => (Math.abs(value) >= 1e6 ? value.toExponential(1) : short(value));
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");

  // Draws marks as vertical lines below the series.
  const markLines = (given) => ({
    hooks: {
      drawClear: [(plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.setLineDash([4, 3]);
        ctx.lineWidth = devicePixelRatio;
        for (const mark of given()) {
          const x = plot.valToPos(mark.x, "x", true);
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.strokeStyle = style(`--mark-${mark.kind}`);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      }],
    },
  });

  const axis = (extra) => ({
    stroke: style("--muted"), grid: { stroke: style("--grid"), width: 1 }, ticks: { stroke: style("--grid"), width: 1 },
    font: "11px system-ui", ...extra,
  });

  // One chart. `lines` has {label, colour, values, low?, high?}; `x` is shared by all of them.
  function draw(place, { x, lines, time, band, marks, sync, zoomed, title }) {
    const old = place.plot;
    if (old) old.destroy();
    place.textContent = "";
    const data = [x], series = [{ value: (plot, value) => (value === null ? "–" : time ? moment(value) : String(value)) }], bands = [];
    series[0].label = time ? "time (UTC)" : "step";
    for (const line of lines) {
      if (band && line.low && line.low.length) {
        data.push(line.high, line.low);
        const none = { stroke: "transparent", points: { show: false }, class: "hidden" };
        series.push({ ...none, label: `${line.label} high` }, { ...none, label: `${line.label} low` });
        bands.push({ series: [series.length - 2, series.length - 1], fill: line.colour + "2b" });
      }
      data.push(line.values);
      const alone = line.values.filter((value) => value !== null).length === 1; // no line leads to it
      series.push({ label: line.label, stroke: line.colour, width: 1.5, value: (plot, value) => short(value), points: { show: alone || x.length < 40 }, spanGaps: Boolean(line.spanGaps) });
    }
    const options = {
      width: Math.max(220, place.clientWidth), height: HEIGHT, series, bands,
      cursor: { sync: { key: sync, setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time } },
      axes: [axis({ space: 60, size: 32 }), axis({ size: 58, values: (plot, ticks) => ticks.map(tick) })],
      legend: { live: true },
      plugins: marks ? [markLines(marks)] : [],
      hooks: {
        setSelect: [(plot) => {
          if (!zoomed || plot.select.width < 4) return;
          const left = plot.posToIdx(plot.select.left), right = plot.posToIdx(plot.select.left + plot.select.width);
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          zoomed(left, right);
        }],
      },
    };
    place.plot = new uPlot(options, data, place);
    const last = lines.map((line) => `${line.label} ${short(line.values.findLast((value) => value !== null))}`);
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${title}. Last values: ${last.join(", ") || "none"}.`);
    return place.plot;
  }

  // Arrow keys move the cursor of a chart that has the focus.
  function keyboard(place, open) {
    place.tabIndex = 0;
    place.addEventListener("keydown", (event) => {
      const plot = place.plot;
      if (!plot) return;
      const count = plot.data[0].length, now = plot.cursor.idx ?? count - 1;
      const to = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 20, PageDown: now + 20, Home: 0, End: count - 1 }[event.key];
      if (event.key === "Enter" && open) open(now);
      if (to === undefined) return;
      event.preventDefault();
      const index = Math.min(count - 1, Math.max(0, to));
      plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: 10 });
    });
  }

  return { draw, keyboard, colour, style, short, moment, KINDS };
})();
