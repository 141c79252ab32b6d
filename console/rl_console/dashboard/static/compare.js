// Curves of several runs, by step.
"use strict";
(async () => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const runs = await (await fetch(page.url)).json();
  const bad = runs.filter((run) => run.problem);
  const problems = document.getElementById("problems");
  problems.hidden = !bad.length;
  problems.textContent = bad.map((run) => `${run.run}: ${run.problem}`).join("\n");
  function drawAll() {
    for (const column of page.columns) {
      const section = document.querySelector(`[data-column="${column}"]`);
      const having = runs.filter((run) => run.series && run.series[column]);
      section.hidden = !having.length;
      if (section.hidden) continue;
      const tables = having.map((run) => [run.steps, run.series[column].mean]);
      const joined = uPlot.join(tables);
      const lines = having.map((run, index) => ({
        label: run.run, colour: Plots.colour(runs.indexOf(run)), values: Array.from(joined[index + 1], (value) => value ?? null), spanGaps: true,
      }));
      const place = section.querySelector(".plot");
      Plots.draw(place, { x: joined[0], lines, time: false, sync: "compare", title: column });
    }
    performance.mark("charts");
  }
  drawAll();
  document.querySelectorAll(".plot").forEach((place) => Plots.keyboard(place));
  addEventListener("theme", drawAll);
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawAll, 150); });
})();
