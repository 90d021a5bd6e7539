"""A Sphinx extension: where the repository's address is known, each notebook's page has buttons to run it elsewhere.

They lead to Colab and to Binder, which open the notebooks made for running from the branch `notebooks`, where the
workflow puts them. The address is the workflow's, or the one in `_config.yml`; without one there are no buttons.
"""

from book_names import repository

BUTTONS = {
    "launch_buttons": {
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
        "notebook_interface": "jupyterlab",
    },
    "path_to_docs": "_build/notebooks",
    "repository_branch": "notebooks",
    "use_repository_button": True,
}


def offer(app, config):
    """Add the buttons to the theme's options if the repository's address is known."""
    if address := config.html_theme_options.get("repository_url") or repository():
        config.html_theme_options.update(BUTTONS, repository_url=address)


def name(app, pagename, templatename, context, doctree):
    """Say what the theme's buttons do."""
    buttons = [button for group in context.get("header_buttons", []) for button in group.get("buttons", [])]
    for button in buttons:
        if button.get("text") in ("Binder", "Colab"):
            button["text"] = f"Open in {button['text']}"


def setup(app):
    """Register with Sphinx; the theme has added its buttons before `name` is called."""
    app.connect("config-inited", offer)
    app.connect("html-page-context", name, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
