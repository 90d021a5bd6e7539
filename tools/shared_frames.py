"""A Sphinx extension: what the frames of a page's explorable figures have in common is in the page once.

A frame is an <img> with its SVG in the address, and most of it are the same letters and lines as in the frames beside
it. In the page, the frames that are hidden at first name each repeated part by its number in curly brackets, which an
address never holds itself, and a script puts the addresses together. Notebooks keep every frame whole.
"""

import json
import re
from collections import Counter

HIDDEN = re.compile(r'(?<=<div hidden>)(<img [^>]*)src="([^"]*)"')
PART = re.compile("(?=%3C)")  # an element of the SVG begins
SCRIPT = """<script>
(() => {
  const parts = %s;
  for (const image of document.querySelectorAll("img[data-frame]"))
    image.src = image.dataset.frame.replace(/{(\\d+)}/g, (_, number) => parts[number]);
})();
</script>
"""


def shared(body):
    """Return a page's HTML with the parts that its hidden frames repeat given once, in a script at its end."""
    counts = Counter(part for frame in HIDDEN.finditer(body) for part in PART.split(frame[2]))
    parts = [part for part, count in counts.items() if count > 1]
    names = {part: f"{{{number}}}" for number, part in enumerate(parts)}

    def named(frame):
        return f'{frame[1]}data-frame="{"".join(names.get(part, part) for part in PART.split(frame[2]))}"'

    return HIDDEN.sub(named, body) + (SCRIPT % json.dumps(parts) if parts else "")


def share(app, pagename, templatename, context, doctree):
    """Do so for a page of the book before anything else is made from its body."""
    if app.builder.format == "html" and "body" in context:
        context["body"] = shared(context["body"])


def setup(app):
    """Register with Sphinx; the slides are made from the body after this."""
    app.connect("html-page-context", share)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
