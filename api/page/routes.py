"""Routes of the web page's files."""

from collections.abc import Mapping

from quart import Response, request
from werkzeug.exceptions import NotFound

from api.http.routes import PAGE_FOLDER, route
from api.page.static_files import HEADERS, ROOT, TYPES, PageFile, accepts_gzip


class PageHandler:
    """The web page."""

    def __init__(self, files: Mapping[str, PageFile]) -> None:
        """``files`` are the page's, by URL path."""
        self._files = files

    @route("GET", ROOT, "page", returns=TYPES, errors=(404,))
    @route("GET", f"{PAGE_FOLDER}<path:name>", "pageFile", returns=TYPES, errors=(404,))
    async def get(self, name: str = "") -> Response:
        """Serve a file of the web page."""
        file = self._files.get(PAGE_FOLDER + name if name else ROOT)
        if file is None:
            raise NotFound
        compressed = accepts_gzip(request.headers)
        headers = {**HEADERS, "etag": file.etag(compressed=compressed)}
        if file.is_current(request.headers.get("if-none-match"), compressed=compressed):
            return Response(status=304, headers=headers)
        if compressed:
            headers["content-encoding"] = "gzip"
        return Response(file.compressed if compressed else file.body, headers=headers, content_type=file.content_type)
