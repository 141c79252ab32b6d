// "/" goes to the search field, "[" and "]" to the page before and after.
"use strict";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "/") {
    const field = document.querySelector("[data-hotkey='/']");
    if (field) { field.focus(); event.preventDefault(); }
  }
  const rel = { "[": "prev", "]": "next" }[event.key];
  const link = rel && document.querySelector(`a[rel=${rel}]`);
  if (link) link.click();
});
