"""The built book's files: links lead somewhere, nothing is loaded from elsewhere, an id is one element's."""

import functools
import re
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browsing import HTML, PAGES


class Elements(HTMLParser):
    """The start tags of a page, as (tag, attributes), and where a link can lead to."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed((HTML / page).read_text(encoding="utf-8"))
        self.ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        self.places = {*self.ids, *(attributes.get("name") for _, attributes in self.tags)}

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


elements = functools.cache(Elements)


def test_the_book_is_built():
    assert "index.html" in PAGES, "run make book first"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(name):
    broken = []
    for tag, attributes in elements(name).tags:
        target = attributes.get("href") or attributes.get("src")
        if not target or target.startswith(("data:", "mailto:", "#!")):
            continue
        if re.match(r"(https?:)?//", target):
            if tag != "a":
                broken.append(f"<{tag}> loads {target}")
            continue
        path, fragment = urldefrag(urljoin(name, target))
        path = unquote(path.partition("?")[0]) or name
        if not (HTML / path).is_file():
            broken.append(f"no file: {target}")
        elif fragment and path.endswith(".html") and unquote(fragment) not in elements(path).places:
            broken.append(f"no such place: {target}")
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small_and_no_two_of_its_elements_have_the_same_id(name):
    assert (HTML / name).stat().st_size < 1e6, "over 1 MB: draw smaller or fewer figures"
    assert [name for name, times in Counter(elements(name).ids).items() if times > 1] == []
