"""Routes of the web page's files."""

from quart import Blueprint, Response, request
from werkzeug.exceptions import NotFound

from api.http.routes import PAGE_FOLDER
from api.page.static_files import HEADERS, ROOT, accepts_gzip
from api.replica import current_replica

blueprint = Blueprint("web", __name__)


@blueprint.get(ROOT)
@blueprint.get(f"{PAGE_FOLDER}<path:name>")
async def page(name: str = "") -> Response:
    """Serve a file of the web page."""
    file = current_replica().page.get(PAGE_FOLDER + name if name else ROOT)
    if file is None:
        raise NotFound
    compressed = accepts_gzip(request.headers)
    headers = {**HEADERS, "etag": file.etag(compressed=compressed)}
    if file.is_current(request.headers.get("if-none-match"), compressed=compressed):
        return Response(status=304, headers=headers)
    if compressed:
        headers["content-encoding"] = "gzip"
    return Response(file.compressed if compressed else file.body, headers=headers, content_type=file.content_type)
