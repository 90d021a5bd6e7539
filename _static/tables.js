// A table that is wider than its place, now or when it is unfolded, is set narrow, then narrower, and on a phone, where
// words would break or sentences stand in narrow columns, its rows are stacked: see book.css.
addEventListener("DOMContentLoaded", () => {
  const phone = matchMedia("(max-width: 719px)"), widths = new Map();
  // Rows of numbers are compared down their columns, so only what is mostly text is stacked.
  const isText = table => {
    const cells = [...table.querySelectorAll("tbody tr:first-child td:nth-child(n + 3)")];
    return cells.length && !cells.some(cell => cell.matches(".text-right, [style*=right]"));
  };
  const isProse = cell => cell.textContent.length > 40 && cell.clientHeight > 7 * parseFloat(getComputedStyle(cell).lineHeight);
  const hasProse = table => table.rows[0].cells.length > 2 && [...table.querySelectorAll("td + td")].some(isProse);
  const fit = places => places.forEach(({ target }) => {
    if (widths.get(target) === target.clientWidth) return; // it has only become higher
    widths.set(target, target.clientWidth);
    target.querySelectorAll(":scope > table").forEach(table => {
      table.classList.remove("narrow", "narrower", "broken", "stacked");
      const prose = phone.matches && hasProse(table), stacks = prose || phone.matches && isText(table);
      for (const kind of stacks ? ["narrow", "stacked"] : ["narrow", "narrower", "broken"])
        if (prose || table.offsetWidth > target.clientWidth) table.classList.add(kind);
    });
  });
  const watch = new ResizeObserver(places => requestAnimationFrame(() => fit(places)));
  const prepare = place => place.querySelectorAll("article table").forEach(table => {
    const headings = [...table.querySelectorAll("thead th")];
    table.querySelectorAll("tbody tr").forEach(row => [...row.cells].forEach((cell, i) => {
      cell.dataset.heading = headings[i]?.textContent ?? ""; // what a stacked cell shows before itself
      cell.classList.toggle("name", i === 0 && cell.textContent.length <= 16); // such as a GPU's, which has hyphens
      cell.classList.toggle("short", i === 0 && cell.textContent.length <= 8); // a phone has room for it
    }));
    // A table that is not laid out as one would be none to a screen reader.
    const roles = { table: "table", "thead, tbody": "rowgroup", tr: "row", "thead th": "columnheader", "tbody th": "rowheader", td: "cell" };
    for (const [parts, role] of Object.entries(roles))
      [table, ...table.querySelectorAll("*")].forEach(part => part.matches(parts) && part.setAttribute("role", role));
    watch.observe(table.parentElement);
  });
  prepare(document);
  document.addEventListener("live:done", event => prepare(event.detail.cell));
});
