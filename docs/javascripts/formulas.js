// Loads MathJax on pages that have formulas, and on no other page.
document$.subscribe(() => {
  if (!document.querySelector(".arithmatex")) return;
  if (window.MathJax?.typesetPromise) {
    window.MathJax.typesetPromise();
    return;
  }
  window.MathJax = {
    tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
    options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
  };
  const script = document.createElement("script");
  script.src = "https://unpkg.com/mathjax@3/es5/tex-mml-chtml.js";
  document.head.appendChild(script);
});
