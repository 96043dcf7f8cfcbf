"""Results of a batch's requests: their form in result files, and the segments in which they are kept until the end.

A segment is a file to which one replica appends under one claim. Its lines are ``NUMBER KIND JSON``. Only the part that
was committed to the store counts, so what a crash leaves behind it is ignored.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import BinaryIO, Literal, NamedTuple

import msgspec

from api.batches.record import Batch, segment_name
from api.dialects.base.interface import Usage
from api.files.storage import Storage

Kind = Literal["o", "e"]
"""Whether a result belongs into the output file or the error file."""

_NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0)


class Result(NamedTuple):
    """The result of a request: a line of the output file or of the error file."""

    number: int
    """The index of the request's line in the input file."""
    kind: Kind
    json: bytes
    usage: Usage


class Assembled(NamedTuple):
    """The sizes in bytes of the result files, 0 for one that does not exist."""

    output: int
    errors: int


def response_of(
    index: int,
    custom_id: str,
    status: int,
    body: bytes,
    *,
    request_id: str,
    usage: Usage = _NO_USAGE,
    notes: Mapping[str, str] = {},
) -> Result:
    """Return the result of a request that got an HTTP response. ``notes`` are headers that name what had no effect."""
    response = {"status_code": status, "request_id": request_id, "body": msgspec.Raw(body)}
    return Result(
        index,
        "o" if status == 200 else "e",
        msgspec.json.encode(
            {
                "id": _new_id(),
                "custom_id": custom_id,
                "response": response | ({"headers": notes} if notes else {}),
                "error": None,
            }
        ),
        usage,
    )


def failure_of(index: int, custom_id: str, code: str, message: str) -> Result:
    """Return the result of a request that got no response."""
    error = {"code": code, "message": message}
    json = msgspec.json.encode({"id": _new_id(), "custom_id": custom_id, "response": None, "error": error})
    return Result(index, "e", json, _NO_USAGE)


def encode(results: Sequence[Result]) -> bytes:
    """Return the results as lines of a segment."""
    return b"".join(b"%d %b %b\n" % (result.number, result.kind.encode(), result.json) for result in results)


def assemble(storage: Storage, batch: Batch) -> Assembled:
    """Write the result files of ``batch`` from its segments, in the order of the input. Runs in a thread.

    Files that exist already are replaced by the same ones. Raises :class:`OSError`, and :class:`ValueError` when the
    segments do not have the results that were counted.
    """
    places: dict[int, tuple[str, int, int, int]] = {}
    with ExitStack() as stack:
        opened = []
        for number, segment in enumerate(batch.segments):
            file = stack.enter_context(storage.open_local(segment_name(batch.id, segment.epoch)))
            opened.append(file)
            for index, kind, start, size in _places(file, segment.size):
                places.setdefault(index, (kind, number, start, size))
        counted = batch.counts.completed + batch.counts.failed
        if len(places) != counted:
            raise ValueError(f"{len(places)} of {counted} results are in the segments")
        ordered = [places[index] for index in sorted(places)]
        return Assembled(
            _write(storage, opened, batch.output_file, [place for place in ordered if place[0] == "o"]),
            _write(storage, opened, batch.error_file, [place for place in ordered if place[0] == "e"]),
        )


def remove_segments(storage: Storage, batch: Batch) -> None:
    """Delete the segments. Runs in a thread."""
    for segment in batch.segments:
        storage.remove(segment_name(batch.id, segment.epoch))


def _places(file: BinaryIO, end: int) -> Iterator[tuple[int, str, int, int]]:
    """Yield the index, kind, offset and size of each result in the committed part of a segment."""
    offset = 0
    while offset < end:
        line = file.readline()
        if not line.endswith(b"\n") or offset + len(line) > end:
            raise ValueError("a segment is shorter than what was committed, or damaged")
        index, kind, json = line.split(b" ", 2)
        yield int(index), kind.decode(), offset + len(line) - len(json), len(json)
        offset += len(line)


def _write(
    storage: Storage, segments: Sequence[BinaryIO], name: str | None, places: Sequence[tuple[str, int, int, int]]
) -> int:
    if name is None:
        return 0
    writer = storage.create()
    try:
        total = 0
        for _, number, start, size in places:
            segments[number].seek(start)
            writer.write(segments[number].read(size))
            total += size
        writer.commit(name)
        return total
    finally:
        writer.discard()


def _new_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"
