// A table that is wider than its place, now or when it is unfolded, is set narrow, then narrower: see book.css.
addEventListener("DOMContentLoaded", () => {
  // No line begins with a unit, or with the second factor of a product.
  document.querySelectorAll("article table.dataframe td").forEach(cell => {
    if (!cell.childElementCount)
      cell.textContent = cell.textContent.replace(/ (?=×)|(?<=×) |(?<=\d) (?=[^\d(→])/g, "\u00a0");
  });
  // A long name in a table breaks behind a dot, a bracket or an underscore.
  document.querySelectorAll("article td code .pre").forEach(name => {
    name.innerHTML = name.innerHTML.replace(/[._(]/g, "$&<wbr>");
  });
  const widths = new Map();
  const fit = places => places.forEach(({ target }) => {
    if (widths.get(target) === target.clientWidth) return; // it has only become higher
    widths.set(target, target.clientWidth);
    const tables = [...target.querySelectorAll(":scope > table")];
    tables.forEach(table => table.classList.remove("narrow", "narrower"));
    for (const kind of ["narrow", "narrower"])
      if (target.scrollWidth > target.clientWidth) tables.forEach(table => table.classList.add(kind));
  });
  const watch = new ResizeObserver(places => requestAnimationFrame(() => fit(places)));
  document.querySelectorAll("article table").forEach(table => watch.observe(table.parentElement));
});
