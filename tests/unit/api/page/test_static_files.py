"""Compression and revalidation of the web page's files."""

import gzip

import pytest

from api.page.static_files import PageFile, accepts_gzip, load


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        (None, False), ("", False), ("br", False), ("gzip", True), ("GZIP, br", True), ("br;q=1, *;q=0.1", True),
        ("gzip;q=0", False), ("gzip; q=0.000, br", False), ("gzip;q=0.5", True), ("x-gzip", True),
    ],
)  # fmt: skip
def test_a_client_chooses_the_coding(accepted: str | None, expected: bool) -> None:
    assert accepts_gzip({"accept-encoding": accepted} if accepted is not None else {}) is expected


def test_each_form_has_its_own_tag() -> None:
    file = PageFile("a.js", b"let a;" * 100)
    assert gzip.decompress(file.compressed) == file.body
    plain, packed = file.etag(compressed=False), file.etag(compressed=True)
    assert plain != packed != PageFile("a.js", b"let b;").etag(compressed=True)
    for sent in (plain, f"W/{plain}", f'"other", {plain}', "*"):
        assert file.is_current(sent, compressed=False)
    assert not file.is_current(None, compressed=False)
    for sent in (packed, '"other"', "", plain.strip('"')):
        assert not file.is_current(sent, compressed=False)


def test_the_page_can_be_left_out() -> None:
    assert load(enabled=False) == {}
    assert "/" in load(enabled=True)
