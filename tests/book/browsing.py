"""The built book in a browser: what is there, and a tab that sees what goes wrong in it."""

from pathlib import Path

HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
# What lies in _static are parts and templates, not pages; a deck of slides stands beside its chapter's page.
_NAMES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
DECKS = [name for name in _NAMES if name.endswith(".slides.html")]
PAGES = [name for name in _NAMES if not name.startswith("_") and name not in DECKS]
DESKTOP = (1280, 900)

# Shows what a reader can unfold: folded cells, and the solutions of exercises.
UNFOLD = """() => {
  document.querySelectorAll("details").forEach(details => { details.open = true; });
  document.querySelectorAll("button.toggle-button-hidden").forEach(button => button.click());
}"""

# Without motion no colour is read in the middle of its change.
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"


class Visit:
    """One browser tab and what went wrong in it."""

    def __init__(self, browser, base):
        self.base, self.faults = base, []
        context = browser.new_context()
        context.add_init_script("localStorage.clear()")
        context.route("**/*", self.only_local)
        self.page = context.new_page()
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.faults.append(f"console: {m.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("requestfailed", lambda r: self.faults.append(f"failed: {r.url}"))
        self.page.on("response", lambda r: r.status >= 400 and self.faults.append(f"{r.status}: {r.url}"))

    def only_local(self, route):
        if route.request.url.startswith((self.base, "data:", "blob:")):
            route.continue_()
        else:
            self.faults.append(f"left this machine: {route.request.url}")
            route.abort()

    def open(self, name, unfold=True):
        """Show a page on a desktop's screen, in the light, as its reader has it who unfolds everything."""
        self.page.goto("about:blank")  # what the page before was still loading ends here
        self.faults.clear()
        self.page.emulate_media(media="screen", color_scheme="light")
        self.resize(DESKTOP)
        self.page.goto(f"{self.base}/{name}")
        self.page.evaluate("window.MathJax?.startup?.promise")
        self.page.add_style_tag(content=STILL)
        if unfold:
            self.page.evaluate(UNFOLD)

    def resize(self, size):
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.wait_for_function("width => innerWidth === width", arg=size[0])
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def switch(self, mode):
        """Press the reader's own switch until it says `mode`: auto, light or dark."""
        for _ in range(3):
            if self.page.evaluate("document.documentElement.dataset.mode") == mode:
                return
            self.page.locator(".theme-switch-button:visible").first.click()
            self.page.mouse.move(0, 0)  # no tooltip
        assert self.page.evaluate("document.documentElement.dataset.mode") == mode, "the theme switch does not switch"

    def has_theme(self, theme):
        return self.page.evaluate("document.documentElement.dataset.theme") == theme
