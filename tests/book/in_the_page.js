// What the tests ask of a page, in the page: each function of `book` returns what is wrong, or does what a reader does.
window.book = (() => {
  const article = () => document.querySelector("article") ?? document.querySelector("main");
  const style = element => getComputedStyle(element);
  const own = element => [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.data.trim());

  // Shows what a reader can unfold: folded cells, the solutions of exercises, and outputs that wait for an answer.
  const unfold = () => {
    document.querySelectorAll('.gate button').forEach(button => button.click());
    document.querySelectorAll("details").forEach(details => { details.open = true; });
    document.querySelectorAll("button.toggle-button-hidden").forEach(button => button.click());
  };

  const faults = () => {
    const found = [], main = article();
    if (document.documentElement.lang !== "en") found.push("the page has no language");

    let level = 0;
    for (const heading of main.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
      const next = Number(heading.tagName[1]);
      if (next > level + 1) found.push(`heading level ${next} after ${level}: ${heading.textContent}`);
      level = next;
    }
    const titles = main.querySelectorAll("h1").length;
    if (titles !== 1) found.push(`${titles} headings of level 1`);

    for (const image of main.querySelectorAll("img")) {
      const named = image.alt && !/\.(png|svg|jpe?g)$/.test(image.alt);
      if (!named && !image.closest("figure")?.querySelector("figcaption"))
        found.push(`an image has neither alternative text nor caption: ${image.src}`);
      if (!image.naturalWidth) found.push(`an image does not show: ${image.src}`);
    }

    for (const math of main.querySelectorAll(".math")) {
      const rendered = math.querySelector("mjx-assistive-mml")?.textContent;
      if (!rendered || rendered.includes("\\") || math.querySelector("mjx-merror"))
        found.push(`a formula is not rendered: ${math.textContent}`);
    }
    const text = main.cloneNode(true);
    text.querySelectorAll("pre, code, script, style, .math").forEach(element => element.remove());
    const raw = text.textContent.match(/\\[(\[]|\$\$|\$[^\s$]([^$\n]*[^\s$])?\$/);
    if (raw) found.push(`a formula shows as it was typed: ${raw[0]}`);
    return found;
  };

  const tooSmall = () => [...document.querySelectorAll("article :is(p, li, td, dd, pre)")]
    .filter(element => element.checkVisibility() && parseFloat(style(element).fontSize) < 14)
    .map(element => element.textContent.slice(0, 60));

  // What does not fit a phone: letters of figures under 9 px, where a figure is as wide as its place, and tables that
  // would have to be scrolled; a formula does not wrap.
  const tooWide = () => {
    const labels = [...article().querySelectorAll('img[src^="data:image/svg"]')].filter(image => {
      const svg = decodeURIComponent(image.src), room = (image.closest(".frames") ?? image.parentElement).clientWidth;
      const scale = Math.min(image.naturalWidth, room) / Number(svg.match(/viewBox=["']\S+ \S+ ([\d.]+)/)[1]);
      const outlines = [...svg.matchAll(/ scale\(([\d.]+) -/g)].map(found => 100 * found[1]);
      const letters = [...svg.matchAll(/font-size=["']([\d.]+)/g)].map(found => Number(found[1]));
      return scale * Math.min(...outlines, ...letters) < 9;
    }).map(image => `letters under 9 px: ${image.alt}`);
    const tables = [...article().querySelectorAll("table:not(:has(.math))")].filter(table =>
      table.parentElement.scrollWidth > table.parentElement.clientWidth).map(table => `scrolls: ${table.innerText.slice(0, 60)}`);
    return [...labels, ...tables, ...brokenWords()];
  };

  // Code and tables of results that end beyond their box.
  const cutOff = () => [...article().querySelectorAll(".cell_input pre, .cell_output .text_html:has(> table)")]
    .filter(box => box.scrollWidth > box.clientWidth).map(box => box.textContent.trim().slice(0, 60));

  // Words of a table that go on in the next line without a sign.
  const brokenWords = () => [...article().querySelectorAll("table :is(td, th)")].flatMap(cell => {
    const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    const lines = (text, from, length) => {
      range.setStart(text, from);
      range.setEnd(text, from + length);
      return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
    };
    while (texts.nextNode()) {
      const text = texts.currentNode, read = cell.checkVisibility() && style(cell).writingMode === "horizontal-tb";
      for (const word of text.parentElement.closest(".math") || !read ? [] : text.data.matchAll(/[\p{L}\p{N}]{2,}/gu))
        if (lines(text, word.index, word[0].length) > 1) found.push(`broken: ${word[0]} in ${cell.textContent.slice(0, 60)}`);
    }
    return found;
  });

  // What a printed page lacks: hidden, or cut off at its right edge.
  const lost = () => {
    const right = element => element.getBoundingClientRect().left + Math.max(element.offsetWidth, element.scrollWidth);
    return [...article().querySelectorAll("h2, h3, h4, pre, table, img, .d2l-ask p")]
      .filter(element => !element.closest("details.hide, [hidden], #jb-print-docs-body"))
      .filter(element => !element.checkVisibility() || right(element) > innerWidth + 1)
      .map(element => `${element.tagName}: ${element.textContent.slice(0, 60)}`);
  };

  // What a control moves: a figure's frame or result, or the height of what it folds.
  let picture;
  const seen = control => control.closest(".d2l-explore")?.querySelector(".frames > :not([hidden]), .result").innerHTML
    ?? control.closest("details, .admonition, .sd-tab-set").offsetHeight;
  const moved = control => seen(control) !== picture;
  const CONTROLS = ".d2l-explore [data-texts], summary, button.toggle-button, .sd-tab-set > label";
  // Of what unfolds, two of each kind: the others are the same elements with other words in them. Of figures all.
  const controls = () => {
    const met = {};
    return [...document.querySelectorAll(CONTROLS)].filter(control => {
      const kind = control.closest("details, .admonition, .sd-tab-set")?.className.replace(/tag_\S+/g, "");
      met[kind] = (met[kind] ?? 0) + 1;
      return control.matches("[data-texts]") || met[kind] <= 2;
    });
  };

  // Brings a control before the reader, who has not touched it yet; returns the key and the place that will move it.
  const reach = control => {
    control.scrollIntoView({ block: "center", behavior: "instant" });
    control.focus({ preventScroll: true });
    picture = seen(control);
    const { x, y, width, height } = control.getBoundingClientRect(), ordered = control.type === "range";
    const last = ordered ? Number(control.max) : control.options?.length - 1, up = Number(control.value) <= last / 2;
    const keys = ordered ? ["ArrowLeft", "ArrowRight"] : control.options ? ["ArrowUp", "ArrowDown"] : ["Enter", "Enter"];
    const place = ordered ? (up ? 0.98 : 0.02) : 0.5;
    return { key: keys[Number(up)], menu: Boolean(control.options), item: up ? last : 0, x: x + place * width, y: y + height / 2,
             focused: document.activeElement === control,
             name: control.labels?.[0]?.textContent ?? (control.textContent.trim() || control.closest("[id]").id) };
  };

  // Figures are drawn for a light ground, which the page turns round in the dark; they must bring one.
  const darkGrounds = () => [...document.querySelectorAll("article img")].filter(image => {
    let ground = image;
    while (ground && /, 0\)|transparent/.test(style(ground).backgroundColor)) ground = ground.parentElement;
    const [r, g, b] = style(ground ?? document.body).backgroundColor.match(/[\d.]+/g).map(Number);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b < 160;
  }).map(image => image.src);

  // axe takes its time for each element. Of those that look the same in both themes, one is enough, on all pages.
  const looks = new Map();
  const look = () => {
    const grounds = new Map();
    for (const element of document.body.querySelectorAll("*")) {
      const is = style(element), ground = [is.backgroundColor, is.backgroundImage, is.opacity, is.filter].join();
      const below = grounds.get(element.parentElement) ?? "";
      grounds.set(element, ground === "rgba(0, 0, 0, 0),none,1,none" ? below : `${below} ${ground}`);
      const parts = [looks.get(element), is.color, is.fontSize, is.fontWeight, grounds.get(element)];
      looks.set(element, parts.join("|"));
    }
  };
  const keepOneOfEachLook = earlier => {
    const known = new Set(earlier), met = new Set(earlier), repeated = [];
    for (const [element, look] of looks) {
      if (!own(element).length || !element.checkVisibility({ visibilityProperty: true })) continue;
      if (met.has(look)) repeated.push(...own(element));
      met.add(look);
    }
    repeated.forEach(text => text.remove());
    for (const element of [...looks.keys()].reverse())
      if (element.closest("article") && !element.textContent.trim() && !element.querySelector("*")) element.remove();
    return [...met].filter(look => !known.has(look));
  };

  return { unfold, faults, tooSmall, tooWide, cutOff, lost, controls, reach, moved, darkGrounds, look, keepOneOfEachLook };
})();
