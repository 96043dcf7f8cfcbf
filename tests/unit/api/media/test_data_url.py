"""Data URLs: the file in them, and what is refused with a reason."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.media.data_url import MediaError, decode_data_url, is_data_url

LIMIT = 1000


@given(file=st.binary(min_size=1, max_size=LIMIT), head=st.sampled_from(["data:image/png;base64,", "DATA:;BASE64,"]))
def test_the_file_is_what_was_encoded(file: bytes, head: str) -> None:
    url = head + base64.b64encode(file).decode()
    assert is_data_url(url)
    assert decode_data_url(url, LIMIT) == file


def test_parameters_of_the_media_type_are_allowed() -> None:
    assert decode_data_url("data:image/svg+xml;charset=utf-8;base64,AAAA", LIMIT) == b"\0\0\0"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png,%89PNG", "not in base64"),
        ("data:image/png;base64", "not in base64"),
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64,A", "not valid base64"),
        ("data:image/png;base64,AA AA", "not valid base64"),
        ("data:image/png;base64,Größe", "not valid base64"),
        ("data:image/png;base64,__--", "not valid base64"),
        ("data:text/html;base64,AAAA", "'text/html': expected an image"),
        ("data:image/png;base64," + base64.b64encode(bytes(LIMIT + 1)).decode(), "maximum of 1000 bytes"),
        ("data:image/png;base64," + "A" * 10 * LIMIT, "maximum of 1000 bytes"),
    ],
)
def test_what_is_wrong_with_a_data_url_is_said(url: str, reason: str) -> None:
    with pytest.raises(MediaError) as error:
        decode_data_url(url, LIMIT)
    assert reason in str(error.value)
