"""Receiving a file in a multipart form: the content goes to a writer as it arrives, never whole into memory."""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser
from werkzeug.http import parse_options_header

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
    """A form that is being parsed.

    The parser is fast only for content. Boundaries and what surrounds them are therefore bounded in number and size.
    """

    def __init__(self, boundary: bytes, limit: int) -> None:
        self._limit = limit
        self._delimiter = b"\r\n--" + boundary
        self._delimiters = 0
        self._received = 0
        self._upload = Upload()
        self._values: dict[str, bytearray] = {}
        self._field: bytearray | None = None
        """The value of the field that is being read; None if the file is."""
        self._content: list[bytes] = []
        self._header = b""
        self._disposition = b""
        self._parts = 0
        self._complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part,
                "on_header_begin": self._on_header,
                "on_header_field": self._on_header_name,
                "on_header_value": self._on_header_value,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_end": self._on_end,
            },
        )

    def parse(self, data: bytes) -> bytes:
        """Parse ``data``; return the part of the file's content in it. Raises :class:`RequestRefused`."""
        # Content must not have lines that start with the boundary (RFC 2046, 5.1.1), so each is that of a part.
        self._delimiters += data.count(self._delimiter)
        if self._delimiters > _MAX_PARTS:
            raise _too_many_parts()
        self._received += len(data)
        try:
            self._parser.write(data)
        except MultipartParseError as error:
            raise _malformed(str(error)[:200]) from None
        if self._received - self._upload.size > FORM_OVERHEAD + len(self._delimiter):  # Its start may be content.
            raise _malformed(f"it has more than {FORM_OVERHEAD} bytes besides the file")
        content = b"".join(self._content)
        self._content.clear()
        return content

    def end(self) -> Upload:
        """Return the form. Raises :class:`RequestRefused` if it is not complete."""
        if not self._complete:
            raise _malformed("it ends before its last boundary")
        self._upload.fields = {name: value.decode("utf-8", "replace") for name, value in self._values.items()}
        return self._upload

    def _on_part(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > _MAX_PARTS:
            raise _too_many_parts()

    def _on_header(self) -> None:
        self._header = b""

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition += data[start:end]

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._disposition.decode("utf-8", "replace"))
        name = options.get("name", "")
        if not name:
            raise _malformed("a part has no Content-Disposition header with a name")
        if name in self._values or (name == _FILE and self._upload.filename is not None):
            raise refuse(ProblemKind.INVALID, f"The form has the field '{name[:64]}' twice.", param=name[:64])
        if "filename" not in options:
            self._field = self._values[name] = bytearray()
            return
        if name != _FILE:
            raise unknown_field(name)
        self._field = None
        self._upload.filename = options["filename"]

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is not None:
            self._field += data[start:end]
            if len(self._field) > _MAX_FIELD:
                raise _malformed(f"a field is longer than {_MAX_FIELD} bytes")
            return
        self._upload.size += end - start
        if self._upload.size > self._limit:
            raise file_too_large(self._limit)
        self._content.append(data[start:end])

    def _on_end(self) -> None:
        self._complete = True


def file_too_large(limit: int) -> RequestRefused:
    """Return the refusal of a file of more than ``limit`` bytes."""
    return refuse(ProblemKind.TOO_LARGE, f"The file is larger than the maximum of {limit} bytes.", param=_FILE)


def unknown_field(name: str) -> RequestRefused:
    """Return the refusal of a field that the form does not have."""
    return refuse(ProblemKind.INVALID, f"Unknown parameter: '{name[:64]}'.", param=name[:64], code="unknown_parameter")


def _too_many_parts() -> RequestRefused:
    return _malformed(f"it has more than {_MAX_PARTS} parts")


def _malformed(why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"We could not read the form in your request: {why}.")
