"""Lists of models in Anthropic's form."""

import json

import pytest
from werkzeug.datastructures import MultiDict

from api.dialects.anthropic.models import render_models
from shared.protocol.errors import RequestRefused
from shared.protocol.registry import ModelInfo


def models_page(query: dict[str, str], *lifecycles: str) -> tuple[list[str], bool]:
    """The names and ``has_more`` of a page of five models."""
    known = [ModelInfo(name=name, created=1_700_000_000, context_length=8192) for name in "abcde"]
    wanted = MultiDict([*query.items(), *(("lifecycle[]", value) for value in lifecycles)])
    page = json.loads(render_models(known, wanted))
    names = [model["id"] for model in page["data"]]
    assert (page["first_id"], page["last_id"]) == ((names[0], names[-1]) if names else (None, None))
    return names, page["has_more"]


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ({}, "abcde", False),
        ({"limit": "2"}, "ab", True),
        ({"limit": "2", "after_id": "b"}, "cd", True),
        ({"limit": "2", "after_id": "c"}, "de", False),
        ({"limit": "2", "before_id": "d"}, "bc", True),
        ({"limit": "9", "before_id": "d"}, "abc", False),
        ({"after_id": "a", "before_id": "e", "limit": "2"}, "bc", True),
    ],
)
def test_models_come_in_pages(query: dict[str, str], names: str, more: bool) -> None:
    assert models_page(query) == ([*names], more)


def test_all_models_are_active() -> None:
    assert models_page({}, "active", "retired") == ([*"abcde"], False)
    assert models_page({}, "retired") == ([], False)


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "many"}, {"after_id": "f"}, {"before_id": "f"}, {"lifecycle": "new"}]
)
def test_a_wrong_query_of_models_is_named(query: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as refusal:
        models_page(query)
    assert (refusal.value.problem.param or "").partition("[")[0] == next(iter(query))
