"""Random forms: what is read does not depend on how a form is cut, and nothing but a refusal comes of a broken one."""

import random
from collections.abc import AsyncIterator

from api.files.upload import FORM_OVERHEAD, Upload, receive
from shared.protocol.errors import RequestRefused
from tests.support.fuzzing import cases

BOUNDARY = b"b-1"
LIMIT = 5_000
PIECES = (
    b"\r\n", b"\n", b"\r", b"--", b"-", b"--b-1", b"\r\n--b-1", b"\r\n--b-1\r\n", b"\r\n--b-1--", b"\0", b"\xff", b";",
    b"Content-Disposition: form-data", b'; name="file"', b'; filename="x"', b'"', b"Content-Length: 3", b": ", b" ",
    b"a" * 2_000,
)  # fmt: skip
"""What a parser of forms looks for."""


def content(dice: random.Random) -> bytes:
    """Content that may hold all but lines that start with the boundary."""
    data = b"".join(dice.choices(PIECES, k=dice.randrange(12)))
    return data.replace(b"--b-1", b"--b-2")


def valid_form(dice: random.Random) -> tuple[bytes, dict[str, str], bytes]:
    """Return a form, its fields and the file's content."""
    fields = {f"field{number}": content(dice)[:1_000] for number in range(dice.randrange(3))}
    file = content(dice)[:LIMIT]
    parts = [b'Content-Disposition: form-data; name="%b"\r\n\r\n%b' % (name.encode(), fields[name]) for name in fields]
    parts.insert(
        dice.randrange(len(parts) + 1),
        b'content-disposition: form-data; name="file"; filename="f"\r\nContent-Type: a/b\r\n\r\n' + file,
    )
    body = b"".join(b"--b-1\r\n%b\r\n" % part for part in parts) + b"--b-1--\r\n"
    return body, {name: value.decode("utf-8", "replace") for name, value in fields.items()}, file


async def read(body: bytes, dice: random.Random) -> tuple[Upload, bytes] | str:
    """Read a form that arrives in random pieces; return what it holds, or why it is refused."""
    received = bytearray()

    async def pieces() -> AsyncIterator[bytes]:
        start = 0
        while start < len(body):
            size = dice.choice((1, 2, 7, 100, 10_000))
            yield body[start : start + size]
            start += size

    async def write(data: bytes) -> None:
        received.extend(data)

    try:
        upload = await receive(pieces(), BOUNDARY, write, limit=LIMIT)
    except RequestRefused as refusal:
        return refusal.problem.message
    finally:
        assert len(received) <= min(LIMIT, len(body))
    assert upload.size == len(received)
    return upload, bytes(received)


async def test_a_valid_form_is_read_whole() -> None:
    for seed in range(cases(300)):
        dice = random.Random(seed)
        body, fields, file = valid_form(dice)
        found = await read(body, dice)
        assert not isinstance(found, str), found
        assert (found[0].fields, found[0].filename, found[1]) == (fields, "f", file), seed


async def test_a_broken_form_is_read_or_refused_however_it_is_cut() -> None:
    for seed in range(cases(300)):
        dice = random.Random(seed)
        body = bytearray(valid_form(dice)[0])
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(body))
            body[at : at + dice.choice((0, 0, 1, 20))] = dice.choice(PIECES) * dice.choice((1, 1, 1, 40))
        assert len(body) < FORM_OVERHEAD * 10
        found = [await read(bytes(body), dice) for _ in range(4)]
        # The pieces may decide which fault is found first, and whether the parser minds a bare line feed in a header.
        read_whole = [one for one in found if not isinstance(one, str)]
        assert all(one == read_whole[0] for one in read_whole), seed
