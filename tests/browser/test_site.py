"""The documentation site: it builds without a broken link, and a browser that reaches no other host shows it."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route

from tests.support.paths import ROOT
from tools.docs.site_links import without_links_to_sources

_LOADING = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<(?:img|iframe|object|embed|source|video|audio)\b[^>]*>"
    r'|<link(?![^>]*\brel="?(?:canonical|prev|next)\b)[^>]*>',
    re.DOTALL,
)
"""The elements with which a page has its browser load something."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of the built site, and the address of a server of it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    built = folder / "build" / "site"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield built, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_no_link_is_broken(site: tuple[Path, str]) -> None:
    page = site[0] / "architecture.html"
    assert "../api/app.py" in page.read_text(encoding="utf-8")
    assert list(without_links_to_sources(site[0], ROOT / "docs")) == []
    text = page.read_text(encoding="utf-8")
    assert "../api/app.py" not in text
    assert "api/app.py" in text
    assert 'href="glossary.html"' in text


def test_every_page_comes_from_the_sites_own_folder(browser: Browser, site: tuple[Path, str]) -> None:
    folder, address = site
    files = sorted(folder.rglob("*.html"))
    pages = {frozenset(_LOADING.findall(file.read_text(encoding="utf-8"))): file for file in files}
    assert len(pages) < 20 < len(files), "most pages load the same"
    elsewhere: list[str] = []

    def only_here(route: Route) -> None:
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
        else:
            elsewhere.append(route.request.url)
            route.abort()

    context = browser.new_context()
    context.route("**/*", only_here)
    tab = context.new_page()
    for page in pages.values():
        tab.goto(f"{address}/{page.relative_to(folder)}")
    tab.wait_for_load_state("networkidle")  # What scripts load is the same on every page.
    context.close()
    assert elsewhere == []
