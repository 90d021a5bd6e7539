"""A page that `make serve` shows, as its reader uses it."""

import json
from urllib.request import Request, urlopen

FINISHED = "cell => ['ok', 'error'].includes(cell.dataset.state)"
PATIENCE_MS = 120_000  # this machine may be busy


class LivePage:
    """A tab with a page whose cells can be run; `faults` are the errors that its console showed."""

    def __init__(self, context, served, name):
        self.page, self.faults = context.new_page(), []
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda m: m.type == "error" and self.faults.append(m.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.goto(f"{served.base}/{name}?token={served.token}")
        self.page.wait_for_selector("body[data-live=ready]")

    def cell(self, selector):
        return self.page.locator(f"article .cell:is({selector})")

    def press(self, action, cell=None):
        (cell or self.page.locator(".live-bar")).locator(f"[data-action={action}]").click()

    def finished(self, cell):
        """Wait until a cell has run; return its state and what it shows."""
        self.page.wait_for_function(FINISHED, arg=cell.element_handle())
        return cell.get_attribute("data-state"), cell.locator(".cell_output").inner_text()

    def run(self, cell, code=None):
        """Run a cell, with other code where some is given; return its state and what it shows."""
        if code is not None:
            cell.locator("[data-editor]").fill(code)
        self.press("run", cell)
        return self.finished(cell)


def kernels(served):
    """Return the ids of the server's kernels."""
    request = Request(f"{served.base}/api/kernels", headers={"Authorization": f"token {served.token}"})
    with urlopen(request) as answer:
        return {kernel["id"] for kernel in json.load(answer)}
