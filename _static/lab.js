// A page that `make serve` shows leads to its notebook in the JupyterLab beside it.
addEventListener("DOMContentLoaded", () => {
  const page = bookProgress.pageAt(location), buttons = document.querySelector(".article-header-buttons");
  if (!("served" in document.body.dataset) || !document.getElementById("live-cells") || !buttons) return;
  const link = document.createElement("a");
  Object.assign(link, { href: `/lab/tree/_build/notebooks/${page}.ipynb`, target: "jupyterlab", className: "btn btn-sm", title: "Open in JupyterLab" });
  link.setAttribute("aria-label", link.title);
  link.innerHTML = '<span class="btn__icon-container"><i class="fas fa-flask"></i></span>';
  buttons.prepend(link);
});
