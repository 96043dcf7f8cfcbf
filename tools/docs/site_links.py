"""``python -m tools.docs.site_links build/site docs``: the links of the documentation site, after it is built.

Pages link to source files, which exist in the repository but not on the site. There, such links become plain text.
Any other broken link is an error; Zensical itself checks only links to pages.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
_ID = re.compile(r'\b(?:id|name)="([^"]*)"')


def without_links_to_sources(site: Path, docs: Path) -> Iterator[str]:
    """Rewrite the pages in the folder ``site``, made of the folder ``docs``; yield a line for each broken link."""
    for page in sorted(site.rglob("*.html")):
        folder = page.parent.relative_to(site)
        broken: list[str] = []

        def linked(match: re.Match[str], folder: Path = folder, page: Path = page, broken: list[str] = broken) -> str:
            target = urlsplit(unescape(match[1]))
            if target.scheme or target.netloc:
                return match[0]
            # As on a server whose root is the site.
            path = os.path.normpath(folder / unquote(target.path) if target.path else page.relative_to(site)).lstrip(
                "/"
            )
            if path.startswith(".."):
                if not (docs / path).exists():
                    broken.append(match[1])
                return match[2]
            file = site / path / "index.html" if (site / path).is_dir() else site / path
            if not file.exists() or (target.fragment and unquote(target.fragment) not in _ids(file)):
                broken.append(match[1])
            return match[0]

        text = page.read_text(encoding="utf-8")
        page.write_text(_LINK.sub(linked, text), encoding="utf-8")
        yield from (f"{page.relative_to(site)}: {link}" for link in broken)


@cache
def _ids(file: Path) -> frozenset[str]:
    return frozenset(map(unescape, _ID.findall(file.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    found = list(without_links_to_sources(Path(sys.argv[1]), Path(sys.argv[2])))
    sys.exit("\n".join(["Broken links:", *found]) if found else None)
