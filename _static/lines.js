// Where lines may end: never before a unit, a ratio's colon or the second factor of a product, nor in a date or ResNet-50,
// in a long name behind a sign, and in short code at spaces only. What a test says, ✓ or ✗, is green or red.
addEventListener("DOMContentLoaded", () => {
  const prepare = root => {
    const change = (places, skipped, what) => root.querySelectorAll(`:is(article, #page) :is(${places})`).forEach(place => {
      const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), found = [];
      while (texts.nextNode()) if (!texts.currentNode.parentElement.closest(skipped)) found.push(texts.currentNode);
      found.forEach(what);
    });
    const UNIT = /(?<=\d) (?=(?:[kKMGT]?i?B|[nµm]?s|min|h|nm|[kMG]?Hz|[GTP]?FLOPs?|Gbit|bits?|bytes?|GPUs?|[pn]?J|k?W|million|billion)(?![\p{L}\p{N}])|%)/gu;
    const DASHED = /(?<=\bResNet|\b\d{4}(?:-\d\d)?)-(?=\d\d)/g;
    const FACTOR = / (?=×|: )|(?<=[×÷]) /g;
    change("p, li, dd, td, th, caption, summary, .cell_output pre", ".math, script", text => {
      const line = text.parentElement.closest("pre") ? text.data : text.data.replaceAll("\n", " ");
      text.data = line.replace(UNIT, "\u00a0").replace(FACTOR, "\u00a0").replace(DASHED, "$&\u2060");
    });
    // A long name in a table or a list of sources may break behind a dot, a bracket or an underscore, and before a capital
    // letter; there and elsewhere a path may, behind a slash, but not what has one between units or in a DOI.
    const PATH = /(?<=\w\/)(?=[\p{L}_]{2})(?<!doi:\S+)/gu;
    const NAME = /(?<=[\w)][._(])(?=[\p{L}\d"])(?<!\d\.)|(?<=\p{Ll}{3})(?<!Infini)(?=\p{Lu}\p{Ll}{2})/gu;
    const LONG = matchMedia("(max-width: 719px)").matches ? /\S{8,}/g : /\S{14,}/g;
    const allow = (places, ...breaks) => change(places, ".math", text => {
      const parts = text.data.replace(LONG, word => breaks.reduce((cut, at) => cut.replace(at, "$&\0"), word)).split("\0");
      if (parts.length > 1) text.replaceWith(...parts.flatMap((part, i) => i ? [document.createElement("wbr"), part] : [part]));
    });
    allow("td, th, dd li", PATH, NAME);
    allow(".citation p, :not(td) > code.literal", PATH);
    // The eye finds the test that fails.
    change(".cell_output pre", ".verdict", text => {
      const parts = text.data.split(/^([✓✗] \S+)/m);
      const colour = part =>
        Object.assign(document.createElement("span"), { className: `verdict${part[0] === "✓" ? " passed" : ""}`, textContent: part });
      if (parts.length > 1) text.replaceWith(...parts.map((part, i) => i % 2 ? colour(part) : part));
    });
  };
  prepare(document);
  document.addEventListener("live:done", event => prepare(event.detail.cell));
  // Outside tables a short word of code, such as an option or a card's name, does not break behind its hyphens.
  document.querySelectorAll("article code.literal .pre").forEach(word => {
    word.classList.toggle("whole", word.textContent.length <= 20 && !word.closest("td"));
  });
});
// What a screen reader and the keyboard need and the theme lacks: code that must be scrolled once it is unfolded can have
// the focus, and sources have no role that readers no longer know.
addEventListener("DOMContentLoaded", () => {
  const watch = new ResizeObserver(places => places.forEach(({ target }) => {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
  }));
  document.querySelectorAll("article pre").forEach(pre => watch.observe(pre));
  document.querySelectorAll(".citation-list, .citation").forEach(source => source.removeAttribute("role"));
});
