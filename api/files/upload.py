"""Receiving a file in a multipart form: the content goes to a writer as it arrives, never whole into memory."""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser
from werkzeug.http import parse_options_header

from api.dialects.base.validation import unknown_parameter
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

FORM_OVERHEAD = 64 * 1024
"""Maximum size in bytes of a form beyond the file's content."""

_MAX_PARTS = 16
_MAX_FIELD = 1024
"""Maximum size of a field in bytes."""
_PIECE = 64 * 1024
"""Maximum number of bytes parsed at a time."""
_FILE = "file"


class Upload(msgspec.Struct, kw_only=True):
    """A received form. ``filename`` is ``None`` if it held no file."""

    filename: str | None = None
    size: int = 0
    fields: dict[str, str] = {}


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a multipart form. Raises :class:`RequestRefused` for other content types."""
    mimetype, options = parse_options_header(content_type)
    if mimetype != "multipart/form-data":
        named = f"Unsupported content type '{mimetype[:100]}'" if mimetype else "No content type"
        raise refuse(ProblemKind.UNSUPPORTED_MEDIA, f"{named}: send the file as 'multipart/form-data'.")
    boundary = options.get("boundary", "").encode("utf-8", "replace")
    if not 1 <= len(boundary) <= 70:  # RFC 2046, 5.1.1
        raise _malformed("the content type has no valid boundary")
    return boundary


async def receive(
    body: AsyncIterator[bytes], boundary: bytes, write: Callable[[bytes], Awaitable[None]], *, limit: int
) -> Upload:
    """Read a form with at most one file, of at most ``limit`` bytes, whose content is passed to ``write``.

    Raises :class:`RequestRefused` for forms that are malformed or too large.
    """
    form = _Form(boundary, limit)
    async for data in body:
        for start in range(0, len(data), _PIECE):
            if content := form.parse(data[start : start + _PIECE]):
                await write(content)
    return form.end()


class _Form:
    def __init__(self, boundary: bytes, limit: int) -> None:
        self._parser = PushMultipartParser(boundary, max_segment_count=_MAX_PARTS)
        self._limit = limit
        self._overhead = FORM_OVERHEAD + len(boundary) + 4  # The start of a boundary may be content.
        self._received = 0
        self._upload = Upload()
        self._values: dict[str, bytearray] = {}
        self._field: bytearray | None = None
        """The value of the field that is being read; None if the file is."""

    def parse(self, data: bytes) -> bytes:
        """Parse ``data``; return the part of the file's content in it. Raises :class:`RequestRefused`."""
        self._received += len(data)
        content: list[bytes] = []
        try:
            for event in self._parser.parse(data):
                if isinstance(event, MultipartSegment):
                    self._begin(event.name or "", event.filename)
                elif event and self._field is None:
                    content.append(event)
                    self._upload.size += len(event)
                    if self._upload.size > self._limit:
                        raise file_too_large(self._limit)
                elif event and self._field is not None:
                    self._field += event
                    if len(self._field) > _MAX_FIELD:
                        raise _malformed(f"a field is longer than {_MAX_FIELD} bytes")
        except MultipartError as error:
            raise _malformed(str(error)[:200]) from None
        if self._received - self._upload.size > self._overhead:
            raise _malformed(f"it has more than {FORM_OVERHEAD} bytes besides the file")
        return b"".join(content)

    def end(self) -> Upload:
        """Return the form. Raises :class:`RequestRefused` if it is not complete."""
        try:
            self._parser.close()
        except MultipartError:
            raise _malformed("it ends before its last boundary") from None
        self._upload.fields = {name: value.decode("utf-8", "replace") for name, value in self._values.items()}
        return self._upload

    def _begin(self, name: str, filename: str | None) -> None:
        if not name:
            raise _malformed("a part has no name in its Content-Disposition header")
        if name in self._values or (name == _FILE and self._upload.filename is not None):
            raise refuse(ProblemKind.INVALID, f"The form has the field '{name[:64]}' twice.", param=name[:64])
        if filename is None:
            self._field = self._values[name] = bytearray()
        elif name == _FILE:
            self._field = None
            self._upload.filename = filename
        else:
            raise unknown_parameter(name[:64])


def file_too_large(limit: int) -> RequestRefused:
    return refuse(ProblemKind.TOO_LARGE, f"The file is larger than the maximum of {limit} bytes.", param=_FILE)


def _malformed(why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"We could not read the form in your request: {why}.")
