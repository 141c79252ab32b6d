// Applies the chosen theme before the first paint; without a choice the system's counts. On a
// narrow screen the tabs are wider than it: the open one is brought into view.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = localStorage.getItem("theme");
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  addEventListener("DOMContentLoaded", () => {
    document.querySelector(".tabs [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      dispatchEvent(new Event("theme"));
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
})();
