"""Forms with a file: what is read of them, however they are cut, and what is refused."""

from collections.abc import AsyncIterator

import pytest

from api.files.forms import parse_upload
from api.files.upload import Upload, boundary_of, receive
from shared.protocol.errors import ProblemKind, RequestRefused

BOUNDARY = b"xyz"
FILE = b'{"custom_id": "1"}\r\n--xy\r\n\x00\xff'


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    suffix = "" if filename is None else f'; filename="{filename}"'
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"{suffix}\r\n\r\n'.encode() + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--xyz--\r\n"


GOOD = form(part("purpose", b"batch"), part("file", FILE, "in.jsonl"))


async def read(body: bytes, *, size: int = 1 << 20, limit: int = 1000) -> tuple[Upload, bytes]:
    content = bytearray()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def write(data: bytes) -> None:
        content.extend(data)

    return await receive(pieces(), BOUNDARY, write, limit=limit), bytes(content)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
async def test_the_content_is_the_same_however_the_form_arrives(size: int) -> None:
    upload, content = await read(GOOD, size=size)
    assert (upload.filename, upload.size, upload.fields) == ("in.jsonl", len(FILE), {"purpose": "batch"})
    assert content == FILE


async def test_no_more_than_a_piece_of_a_large_file_is_held() -> None:
    largest = 0

    async def pieces() -> AsyncIterator[bytes]:
        yield part("file", b"", "a")[:-2]
        for _ in range(200):
            yield b"x" * 100_000
        yield b"\r\n--xyz--\r\n"

    async def write(data: bytes) -> None:
        nonlocal largest
        largest = max(largest, len(data))

    upload = await receive(pieces(), BOUNDARY, write, limit=1 << 30)
    assert upload.size == 20_000_000
    assert largest <= 300_000


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "form"),
        (b"hello", "form"),
        (GOOD[:-10], "form"),
        (form(part("file", b"1", "a"), part("file", b"2", "b")), "twice"),
        (form(part("other", b"1", "a")), "Unknown parameter: 'other'"),
        (form(part("purpose", b"x" * 2000)), "longer"),
        (b"--xyz\r\n" + b"a: b\r\n" * 5_000, "Maximum segment header count"),
        (form(*(part(f"f{number}", b"") for number in range(40))), "Maximum segment count"),
        (b"--xyz\r\nContent-Type: text/plain\r\n\r\nx\r\n--xyz--\r\n", "Content-Disposition"),
        (form(part("", b"1")), "no name"),
    ],
)
async def test_malformed_forms_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as refusal:
        await read(body)
    assert refusal.value.problem.kind is ProblemKind.INVALID


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (form(part("file", b"\r\n--xyzz" * 1000, "a")), "boundary"),
        (form(part("file", b"\r\n--xyz" + b" " * 200_000, "a")), "boundary"),
        (b"\r\n" * 100_000 + GOOD, "besides the file"),
        (GOOD + b"\r\n" * 100_000, "besides the file"),
    ],
    ids=["lines that start with the boundary", "padding", "preamble", "epilogue"],
)
async def test_what_surrounds_the_file_is_bounded(body: bytes, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as refusal:
        await read(body, limit=1 << 20)
    assert refusal.value.problem.kind is ProblemKind.INVALID


async def test_a_file_that_is_too_large_is_refused_before_its_end() -> None:
    with pytest.raises(RequestRefused) as refusal:
        await read(part("file", b"x" * 2000, "a"), limit=1000, size=100)
    assert refusal.value.problem.kind is ProblemKind.TOO_LARGE


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=a"])
def test_other_content_types_are_refused(content_type: str) -> None:
    with pytest.raises(RequestRefused):
        boundary_of(content_type)
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"


def fields(**values: str) -> Upload:
    return Upload(filename="../../etc/passwd", size=1, fields={"purpose": "batch", **values})


def test_the_fields_of_an_upload() -> None:
    found = parse_upload(fields())
    assert (found.filename, found.retention) == ("passwd", 30 * 86_400)
    expiring = fields(**{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"})
    assert parse_upload(expiring).retention == 3600


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"purpose": "assistants"}, "purpose"),
        ({"purpose": "other"}, "purpose"),
        ({"more": "1"}, "more"),
        ({"expires_after[seconds]": "3600"}, "expires_after.anchor"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "60"}, "expires_after.seconds"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "soon"}, "expires_after.seconds"),
        ({"expires_after[anchor]": "last_used", "expires_after[seconds]": "3600"}, "expires_after.anchor"),
    ],
)
def test_wrong_fields_are_named(values: dict[str, str], param: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        parse_upload(fields(**values))
    assert refusal.value.problem.param == param


@pytest.mark.parametrize("missing", ["purpose", "file"])
def test_missing_parts_are_named(missing: str) -> None:
    upload = Upload(filename=None if missing == "file" else "a", fields={} if missing == "purpose" else fields().fields)
    with pytest.raises(RequestRefused, match=f"'{missing}'") as refusal:
        parse_upload(upload)
    assert refusal.value.problem.code == "missing_required_parameter"
