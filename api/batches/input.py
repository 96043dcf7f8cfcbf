"""The input file of a batch: finding its lines and validating them. All of this runs in a thread."""

from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from api.batches.record import LineError

MAX_LINES = 50_000
"""Maximum number of batch requests: OpenAI's."""

MAX_ERRORS = 100
"""Maximum number of errors that are reported."""

_MAX_ID = 512
"""Maximum length of a ``custom_id`` in characters."""

_MAX_MODEL = 256
"""Maximum length of a model's name in characters that is shown."""


class Line(msgspec.Struct, frozen=True):
    """One line: a request. ``body`` is JSON text."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _UncheckedLine(msgspec.Struct, frozen=True):
    """A line whose fields may have any type, or be missing."""

    custom_id: object = None
    method: object = None
    url: object = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct, frozen=True):
    model: str = ""


class Lines(NamedTuple):
    """The places of the lines in the file, without empty ones, in bytes."""

    offsets: "array[int]"
    sizes: "array[int]"

    def __len__(self) -> int:
        return len(self.offsets)


class Validated(NamedTuple):
    """A file that was read: its lines, what is wrong with it, and its model if all lines name the same."""

    lines: Lines
    errors: list[LineError]
    model: str | None


_line_decoder = msgspec.json.Decoder(Line)
_unchecked_decoder = msgspec.json.Decoder(_UncheckedLine)
_body_decoder = msgspec.json.Decoder(_Body)


def find_lines(file: BinaryIO, max_line: int) -> Lines:
    """Return the places of the lines of a file that was valid."""
    lines = Lines(array("Q"), array("Q"))
    for _, offset, data in _read(file, max_line):
        lines.offsets.append(offset)
        lines.sizes.append(len(data))
    return lines


def read_line(data: bytes) -> Line:
    """Decode a line of a file that was valid. Raises :class:`msgspec.DecodeError` if the file has changed since."""
    return _line_decoder.decode(data)


def validate_file(file: BinaryIO, endpoint: str, max_line: int) -> Validated:
    """Read and validate a file of requests to ``endpoint``, whose lines have at most ``max_line`` bytes."""
    lines = Lines(array("Q"), array("Q"))
    errors: list[LineError] = []
    seen: set[str] = set()
    models: set[str] = set()
    for number, offset, data in _read(file, max_line):
        lines.offsets.append(offset)
        lines.sizes.append(len(data))
        if len(lines) > MAX_LINES:
            errors.append(LineError(code="too_many_tasks", message=f"The file has more than {MAX_LINES} requests."))
            break
        if len(data) > max_line:
            message = f"This line is longer than the maximum of {max_line} bytes."
            errors.append(LineError(code="line_too_long", message=message, line=number))
        elif (error := _check(data, number, endpoint, seen, models)) is not None:
            errors.append(error)
        if len(errors) >= MAX_ERRORS:
            break
    if not lines.offsets:
        errors.append(LineError(code="empty_file", message="The input file is empty."))
    return Validated(lines, errors, (models.pop() or None) if len(models) == 1 else None)


def _read(file: BinaryIO, max_line: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, offset and bytes of each line that is not empty. Of a line that is too long, only a part."""
    number, offset = 0, len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else file.seek(0)
    while data := file.readline(max_line + 2):
        number += 1
        start, rest = offset, data
        offset += len(data)
        while not rest.endswith(b"\n") and (rest := file.readline(max_line + 2)):
            offset += len(rest)
        if stripped := data.rstrip(b"\r\n"):
            yield number, start, stripped


def _check(data: bytes, number: int, endpoint: str, seen: set[str], models: set[str]) -> LineError | None:
    """Return what is wrong with a line. Notes its id and model."""
    try:
        line = _unchecked_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = "This line is not parseable as valid JSON, or not an object."
        return LineError(code="invalid_json_line", message=message, line=number)
    error = _problem(line, endpoint, seen)
    if error is None:
        try:
            model = _body_decoder.decode(line.body).model
            if len(models) < 2:
                models.add(model if len(model) <= _MAX_MODEL else "")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not bytes(line.body).lstrip().startswith(b"{"):
                error = ("invalid_type", "The 'body' must be a JSON object.", "body")
    if error is None:
        return None
    code, message, param = error
    return LineError(code=code, message=message, line=number, param=param)


def _problem(line: _UncheckedLine, endpoint: str, seen: set[str]) -> tuple[str, str, str] | None:
    """Return the code, message and field of the first problem outside of the body."""
    for name in ("custom_id", "method", "url"):
        value = getattr(line, name)
        if value is None:
            return "missing_required_parameter", f"Missing required parameter: '{name}'.", name
        if not isinstance(value, str):
            return "invalid_type", f"Invalid type for '{name}': expected a string.", name
    if bytes(line.body) == b"null":
        return "missing_required_parameter", "Missing required parameter: 'body'.", "body"
    assert isinstance(line.custom_id, str)
    if not 1 <= len(line.custom_id) <= _MAX_ID:
        return "invalid_value", f"A 'custom_id' must have 1 to {_MAX_ID} characters.", "custom_id"
    if line.custom_id in seen:
        shown = line.custom_id[:64]
        return "duplicate_custom_id", f"The 'custom_id' '{shown}' is used by an earlier line.", "custom_id"
    seen.add(line.custom_id)
    if line.method != "POST":
        return "invalid_method", "The 'method' must be 'POST'.", "method"
    if line.url != endpoint:
        message = f"The 'url' must be the batch's endpoint, '{endpoint}'."
        return "mismatched_url", message, "url"
    return None
