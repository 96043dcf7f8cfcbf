"""Which pages of other origins may use the API."""

import pytest

from api.http.guards import CrossOrigin

LISTED = CrossOrigin(["https://app.example/", " http://localhost:3000", ""])
PREFLIGHT = {"access-control-request-method": "POST"}


@pytest.mark.parametrize("origin", ["https://app.example", "HTTPS://APP.example", "http://localhost:3000"])
def test_listed_origins_may(origin: str) -> None:
    headers = {"origin": origin, **PREFLIGHT}
    assert LISTED.is_preflight("OPTIONS", headers)
    assert LISTED.response_headers(headers)["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin", [None, "", "null", "http://app.example", "https://app.example:1", "https://app.example.evil", "*"]
)
def test_others_may_not(origin: str | None) -> None:
    headers = PREFLIGHT | ({} if origin is None else {"origin": origin})
    assert not LISTED.is_preflight("OPTIONS", headers)
    assert LISTED.response_headers(headers) == {}


def test_none_are_allowed_by_default_and_a_star_allows_any() -> None:
    headers = {"origin": "null", **PREFLIGHT}
    assert not CrossOrigin([""]).enabled
    assert not CrossOrigin([""]).allows("")
    assert CrossOrigin(["*"]).is_preflight("OPTIONS", headers)
    assert not CrossOrigin(["*"]).is_preflight("POST", headers)
    assert not CrossOrigin(["*"]).is_preflight("OPTIONS", {"origin": "null"})


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("authorization, x-stainless-os", "authorization, x-stainless-os"),
        ("x-app.version,x!#$%&'*+-^_`|~.1", "x-app.version,x!#$%&'*+-^_`|~.1"),
        ("x\r\nset-cookie: a=b", "authorization, content-type"),
        ("a" * 3000, "authorization, content-type"),
    ],
)
def test_a_preflight_allows_the_headers_that_it_names(asked: str, allowed: str) -> None:
    headers = LISTED.preflight_headers({"access-control-request-headers": asked})
    assert headers["access-control-allow-headers"] == allowed
