"""The web page: the static files of ``api/page/web``, read and compressed once at start.

The page needs no build step and no other host. Its files are public; what it shows comes from the API, with a key where
requests need one.
"""

import gzip
import re
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from api.dialects.base.interface import Lookup
from api.http.routes import PAGE_FOLDER

ROOT = "/"

HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
"""Headers of every file. ``no-cache`` makes browsers ask for a newer version each time, which costs a 304."""

_CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
}

TYPES = tuple(content_type.partition(";")[0] for content_type in _CONTENT_TYPES.values())
"""Media types of the page's files."""

_ETAGS = re.compile(r'(?:W/)?("[^"]*")|\*')


class PageFile:
    """One file of the page, plain and compressed."""

    def __init__(self, name: str, body: bytes) -> None:
        self.content_type = _CONTENT_TYPES[name.rpartition(".")[2]]
        self.body = body
        self.compressed = gzip.compress(body, mtime=0)
        self._digest = sha256(body).hexdigest()[:32]

    def etag(self, *, compressed: bool) -> str:
        """Return the entity tag of the plain or the compressed form."""
        return f'"{self._digest}-gzip"' if compressed else f'"{self._digest}"'

    def is_current(self, if_none_match: str | None, *, compressed: bool) -> bool:
        """Return whether a client with this ``If-None-Match`` header has the current version."""
        tags = _ETAGS.finditer(if_none_match or "")
        return any(tag[0] == "*" or tag[1] == self.etag(compressed=compressed) for tag in tags)


def load(*, enabled: bool) -> Mapping[str, PageFile]:
    """Return the page's files by URL path; none if the page is not ``enabled``."""
    return _page() if enabled else {}


@cache
def _page() -> Mapping[str, PageFile]:
    found = {
        PAGE_FOLDER + name: PageFile(name, item.read_bytes()) for name, item in _files(files("api.page") / "web", "")
    }
    found[ROOT] = found.pop(f"{PAGE_FOLDER}index.html")
    return found


def accepts_gzip(headers: Lookup) -> bool:
    """Return whether the client accepts a compressed body."""
    for coding in (headers.get("accept-encoding") or "").lower().split(","):
        name, _, weight = coding.partition(";")
        if name.strip() in ("gzip", "x-gzip", "*"):
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    return False


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files(item, f"{prefix}{item.name}/")
        elif item.name.rpartition(".")[2] in _CONTENT_TYPES:
            yield prefix + item.name, item
