// Where lines may end: never before a unit or the second factor of a product, in a long name behind a sign.
addEventListener("DOMContentLoaded", () => {
  const change = (places, skipped, what) => document.querySelectorAll(`article :is(${places})`).forEach(place => {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) if (!texts.currentNode.parentElement.closest(skipped)) found.push(texts.currentNode);
    found.forEach(what);
  });
  const UNIT = /(?<=\d) (?=(?:[kKMGT]?i?B|[nµm]?s|min|h|[kMG]?Hz|[GTP]?FLOPs?|Gbit|bits?|bytes?|GPUs?|[pn]?J|k?W)(?![\p{L}\p{N}])|%)/gu;
  const FACTOR = / (?=×)|(?<=×) /g;
  change("p, li, dd, td, th, caption, summary, .cell_output pre", ".math, script", text => {
    text.data = text.data.replace(UNIT, "\u00a0").replace(FACTOR, "\u00a0");
  });
  // In a table a long name may break behind a dot, a bracket or an underscore, and before a capital letter.
  const NAME = /(?<=[\w)][._(])(?=[\p{L}\d"])(?<!\d\.)|(?<=\p{Ll}{3})(?=\p{Lu}\p{Ll}{2})/gu;
  const LONG = matchMedia("(max-width: 719px)").matches ? /\S{8,}/g : /\S{14,}/g;
  change("td, th", ".math", text => {
    const parts = text.data.replace(LONG, word => word.replace(NAME, "$&\0")).split("\0");
    if (parts.length > 1) text.replaceWith(...parts.flatMap((part, i) => i ? [document.createElement("wbr"), part] : [part]));
  });
});
