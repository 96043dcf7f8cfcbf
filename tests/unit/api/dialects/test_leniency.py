"""Lenient where nothing can go wrong: nulls, empty lists and unknown members, in all dialects and at every depth.

The bodies are those of the cases in ``cases/*.jsonl`` that are served.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

from api.dialects.azure.parse import PASSED as PASSED_BY_AZURE
from api.dialects.base.fields import History, required_names
from api.dialects.base.interface import Dialect
from api.dialects.base.unsupported import IGNORED_HEADER, Refused, marked_fields
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, formed
from tests.support.dialects import DIALECTS
from tests.unit.api.dialects.recorded import cases
from tests.unit.api.dialects.test_cases import FOLDER

Place = tuple[str | int, ...]

PASSED = {"extra-parameters": "pass-through"}
FILES = {
    "azure": "chat",
    "ovms_chat": "chat",
    "ovms_completions": "completions",
    "ovms_responses": "responses",
}
"""The files of cases of dialects that have the bodies of another one."""


def make(name: str) -> Dialect:
    return DIALECTS[name].make(headers={**DIALECTS[name].known.headers, **PASSED})


@cache
def served(name: str) -> list[tuple[dict[str, Any], BaseModel, ChatRequest]]:
    """The bodies that a dialect serves, with their objects."""
    file, found = FILES.get(name, name), []
    body_of = DIALECTS[file].route.body
    assert body_of is not None
    for _, plain, case in (param.values for param in cases(FOLDER, file)):
        body = {key: value for key, value in (plain["plain"] | case["send"]).items() if value is not None}
        try:
            request = make(name).parse(json.dumps(body).encode())
            found.append((body, body_of.model.model_validate(body, strict=True), request))
        except (RequestRefused, ValueError):
            continue
    return found


def objects(given: Any, parsed: Any, place: Place = ()) -> Iterator[tuple[Place, BaseModel]]:
    """Each object of a body that the interface describes, with its place."""
    if isinstance(given, list) and isinstance(parsed, list):
        for index, (inner, value) in enumerate(zip(given, parsed, strict=True)):
            yield from objects(inner, value, (*place, index))
    elif isinstance(given, dict) and isinstance(parsed, BaseModel):
        yield place, parsed
        for name, field in type(parsed).model_fields.items():
            key = field.alias or name
            yield from objects(given.get(key), getattr(parsed, name), (*place, key))


@cache
def optional(kind: type[BaseModel], *, lists: bool) -> set[str]:
    """The members of an object that may be left out; of these, only ``lists``."""
    fields = kind.model_fields.items()
    return {
        field.alias or key for key, field in fields if not lists or "list[" in str(field.annotation)
    } - required_names(kind)


def add(whole: dict[str, Any], place: Place, members: dict[str, Any]) -> None:
    """Give the object at a place more members."""
    inner: Any = whole
    for step in place:
        inner = inner[step]
    inner |= members | inner


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("empty", [None, []])
def test_what_is_empty_is_as_if_left_out(name: str, empty: object) -> None:
    """For every optional member of every object. An unknown one is none if it is null."""
    tried = 0
    for body, parsed, request in served(name):
        whole = deepcopy(body)
        for place, one in objects(body, parsed):
            keys = optional(type(one), lists=empty is not None)
            add(whole, place, dict.fromkeys({*keys, "surprise"}, empty))
            tried += len(keys)
        assert make(name).parse(json.dumps(whole).encode()) == request, body
    assert tried > (5 if name.startswith("ollama") else 100)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_neutral_value_of_another_servers_field_is_as_if_left_out(name: str) -> None:
    body, parsed, request = served(name)[0]
    tried = 0
    for field, mark in marked_fields(type(parsed)).items():
        for value in mark.neutral if isinstance(mark, Refused) else ():
            # Beam searches are served by some, and Azure has fields of its own.
            if field != "length_penalty" and (name != "azure" or field in PASSED_BY_AZURE):
                assert make(name).parse(json.dumps(body | {field: value}).encode()) == request, (field, value)
            tried += 1
    # Those of a chat of Ollama are options.
    assert tried > {"anthropic": 3, "ollama_chat": -1, "ollama_generate": 1}.get(name, 25)


@pytest.mark.parametrize("name", [name for name in DIALECTS if "completions" not in name])
def test_an_unknown_member_of_a_message_changes_nothing_but_the_header(name: str) -> None:
    shapes = set()
    for body, parsed, request in served(name):
        for place, one in objects(body, parsed):
            if not isinstance(one, History):
                continue
            shapes.add(type(one))
            add(whole := deepcopy(body), place, {"sürprise": {"role": 1}})
            found = make(name).parse(json.dumps(whole).encode())
            named = "".join("[]" if isinstance(step, int) else f".{step}" for step in (*place, "s%C3%BCrprise"))
            assert named[1:] in dict(found.response.notes)[IGNORED_HEADER].split(", "), (body, place)
            assert formed(found, notes=request.response.notes) == request, (body, place)
    assert len(shapes) > {"ollama_chat": 5, "ollama_generate": 0}.get(name, 9)


def test_the_header_is_bounded() -> None:
    names = {f"a{number}" * 50: 1 for number in range(1000)}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"} | names]}
    ((header, value),) = make("chat").parse(json.dumps(body).encode()).response.notes
    assert header == IGNORED_HEADER
    assert len(value) < 2000
    assert value.endswith(", ...")


@pytest.mark.parametrize("name", [name for name in DIALECTS if name.startswith("ovms")])
def test_the_model_server_ignores_unknown_fields(name: str) -> None:
    for body, _, request in served(name):
        found = make(name).parse(json.dumps(body | {"surprise": 1}).encode())
        assert "surprise" in dict(found.response.notes)[IGNORED_HEADER]
        assert formed(found, notes=request.response.notes) == request
