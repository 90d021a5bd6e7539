"""The built book in a browser: what is there, and a tab that sees what goes wrong in it."""

from pathlib import Path

HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
# What lies in _static are parts and templates, not pages; a deck of slides stands beside its chapter's page.
_NAMES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
DECKS = [name for name in _NAMES if name.endswith(".slides.html")]
PAGES = [name for name in _NAMES if not name.startswith("_") and name not in DECKS]
DESKTOP = (1280, 900)

# Without motion no colour is read in the middle of its change.
STILL = """addEventListener("DOMContentLoaded", () => document.head.append(Object.assign(
    document.createElement("style"),
    { textContent: "*, *::before, *::after { transition: none !important; animation: none !important }" })))"""


class Visit:
    """One browser tab and what went wrong in it; in its pages, `book` is what in_the_page.js defines."""

    def __init__(self, browser, base):
        self.base, self.faults = base, []
        context = browser.new_context()
        context.add_init_script("localStorage.clear()")
        context.add_init_script(STILL)
        context.add_init_script(path=Path(__file__).with_name("in_the_page.js"))
        self.page = context.new_page()
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.faults.append(f"console: {m.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("request", lambda r: self.is_local(r.url) or self.faults.append(f"left this machine: {r.url}"))
        self.page.on("requestfailed", lambda r: self.faults.append(f"failed: {r.url}"))
        self.page.on("response", lambda r: r.status >= 400 and self.faults.append(f"{r.status}: {r.url}"))

    def is_local(self, url):
        return url.startswith((f"{self.base}/", "data:", "blob:", "about:"))

    def open(self, name, size=DESKTOP):
        """Show a page in the light."""
        self.page.goto("about:blank")  # what the page before was still loading ends here
        self.faults.clear()
        self.page.emulate_media(media="screen", color_scheme="light")
        self.resize(size)
        self.page.goto(f"{self.base}/{name}")
        self.page.evaluate("window.MathJax?.startup?.promise")

    def resize(self, size):
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.wait_for_function("width => innerWidth === width", arg=size[0])
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def ask(self, question):
        """Return what a function of `book` returns."""
        return self.page.evaluate(f"book.{question}()")

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
