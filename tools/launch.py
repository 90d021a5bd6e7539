"""A Sphinx extension: once `_config.yml` says where the repository is, each notebook's page has a button to run it.

The button leads to Binder, which installs what `.binder/` names. Without an address there is none.
"""

BUTTONS = {
    "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
    "repository_branch": "main",
    "use_repository_button": True,
}


def offer(app, config):
    """Add the buttons to the theme's options if these hold the repository's address."""
    if config.html_theme_options.get("repository_url"):
        config.html_theme_options.update(BUTTONS)


def setup(app):
    """Register with Sphinx."""
    app.connect("config-inited", offer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
