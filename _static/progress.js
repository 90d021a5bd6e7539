// What the reader has done, kept in this browser alone: questions answered and exercises solved, ticked in the page, in
// the contents and on the front page. `bookItems` (items.js) lists what each page has; `bookProgress` is for questions.js.
const bookProgress = (() => {
  const KEY = "book-progress";
  const read = () => {
    try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
  };
  const write = all => {
    try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* a browser that keeps nothing */ }
    dispatchEvent(new Event("book:progress"));
  };
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location).pathname;
  const pageAt = address => {
    const { origin, pathname } = new URL(address, location);
    if (origin !== location.origin || !pathname.startsWith(root)) return undefined;
    return decodeURIComponent(pathname.slice(root.length)).replace(/(^|\/)$/, "$1index").replace(/\.html$/, "");
  };
  const page = pageAt(location);
  const isDone = value => Boolean(value && !value.shown);
  return {
    get: (item, of = page) => read()[of]?.[item],
    set: (item, value) => {
      const all = read();
      all[page] = { ...all[page], [item]: value };
      if (value === undefined) delete all[page][item];
      write(all);
    },
    count: of => {
      const items = bookItems[of] ?? [], done = read()[of] ?? {};
      return { done: items.filter(item => isDone(done[item])).length, all: items.length };
    },
    clear: () => { const before = read(); write({}); return before; },
    restore: write, pageAt,
  };
})();

addEventListener("DOMContentLoaded", () => {
  const starter = cell => [...cell.classList].map(name => name.match(/^tag_(exercise)-starter-(.+)$/)).find(Boolean);
  const label = cell => `exercise-${starter(cell)[2]}`;
  const starters = [...document.querySelectorAll('article .cell[class*="tag_exercise-starter-"]')];

  // The last line of a check begins with ✓ or ✗; of several runs the last one counts.
  document.addEventListener("live:done", ({ detail: { cell, text } }) => {
    if (!starter(cell)) return;
    const marks = text.match(/^[✓✗](?= )/gm) ?? [];
    bookProgress.set(label(cell), marks.at(-1) === "✓" ? { solved: true } : undefined);
  });

  const tick = (place, done, text) => {
    let mark = place.querySelector(":scope > .done");
    if (!done) return mark?.remove();
    if (!mark) place.append(" ", mark = Object.assign(document.createElement("span"), { className: "done" }));
    mark.textContent = text;
  };
  const told = ({ done, all }) => `${done === all ? "✓ " : ""}${done} of ${all}`;
  const links = [...document.querySelectorAll(".bd-docs-nav a.reference, article td a.reference, article li a.reference")]
    .filter(link => !link.hash && (bookItems[bookProgress.pageAt(link.href)] ?? []).length);

  const summary = document.createElement("p");
  summary.className = "progress-summary";
  summary.setAttribute("aria-live", "polite");
  let cleared;
  const button = (text, action) => Object.assign(document.createElement("button"),
    { type: "button", textContent: text, className: "book-button", onclick: action });
  const summarise = () => {
    const pages = Object.keys(bookItems).map(page => bookProgress.count(page));
    const sum = key => pages.reduce((total, page) => total + page[key], 0);
    if (sum("done")) cleared = undefined;
    summary.hidden = !sum("done") && !cleared;
    summary.replaceChildren(sum("done")
      ? `You have answered or solved ${sum("done")} of ${sum("all")} questions and exercises. Only this browser knows. `
      : "Your progress is cleared. ");
    summary.append(cleared ? button("Undo", () => bookProgress.restore(cleared))
      : button("Clear my progress", () => { cleared = bookProgress.clear(); summarise(); }));
  };
  if (bookProgress.pageAt(location) === "index") document.querySelector("article h1")?.after(summary);

  const show = () => {
    links.forEach(link => {
      const count = bookProgress.count(bookProgress.pageAt(link.href));
      tick(link.parentElement.matches("li") && link.closest("nav") ? link : link.parentElement, count.done, told(count));
    });
    starters.forEach(cell => {
      const title = document.querySelector(`#${CSS.escape(label(cell))} .admonition-title`);
      if (title) tick(title, bookProgress.get(label(cell)), "✓ solved");
    });
    summarise();
  };
  addEventListener("book:progress", show);
  addEventListener("storage", show);
  show();
});
