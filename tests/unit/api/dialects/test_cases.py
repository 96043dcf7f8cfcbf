"""What bodies become, and what is refused: the cases of ``cases/*.jsonl``, a file for each dialect.

The first line of a file has a ``plain`` body, the request that it ``is``, and objects that cases share. Each other line
is a case: ``send`` are the fields that the plain body gets, ``without`` those that it loses, and ``headers``, ``query``
and ``serving`` are what else the dialect reads. ``is`` is what differs in the request, with JSON texts as objects. A
body that is refused has an ``error`` instead: status, param, code, and perhaps words of the message; ``reply`` are
parts of the reply. ``{"*": [3, "a"]}`` is ``"aaa"``, ``{"*": [3, [1]]}`` is ``[1, 1, 1]``, and
``{"$": "tool", "a": 1}`` is the shared object called ``tool`` with the field ``a``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.dialects.anthropic import Anthropic
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.responses import ModelServerResponses
from api.dialects.responses import Responses
from shared.protocol.errors import RequestRefused
from shared.protocol.request import decode_request, encode_request

Case = dict[str, Any]
FOLDER = Path(__file__).parent / "cases"
VERSIONS = {"api-version": "2024-05-01-preview"}
PARTIAL = ("sampling", "defaults", "response_fields")
"""Parts of a request of which a case has only what differs."""


class Counting(Anthropic):
    """Reads the bodies of requests that count tokens."""

    parse = Anthropic.parse_count


DIALECTS: Mapping[str, Callable[[Case], Dialect]] = {
    "anthropic": lambda case: Anthropic(case.get("headers", {"anthropic-version": "2023-06-01"}), "req_1"),
    "anthropic_count": lambda case: Counting(case.get("headers", {})),
    "azure": lambda case: Azure(
        case.get("query", VERSIONS), case.get("headers", {}), lambda: tuple(case.get("serving", ("m",)))
    ),
    "chat": lambda case: OpenAI(),
    "completions": lambda case: OpenAICompletions(),
    "ovms_chat": lambda case: ModelServer(),
    "ovms_completions": lambda case: ModelServerCompletions(),
    "ovms_responses": lambda case: ModelServerResponses(),
    "responses": lambda case: Responses(),
}


def expand(shared: Mapping[str, Any], value: Case) -> Any:
    """Return what an object stands for: itself, or a repeated or a shared value."""
    if value.keys() == {"*"}:
        count, unit = value["*"]
        return unit * count
    return shared[value["$"]] | {name: inner for name, inner in value.items() if name != "$"} if "$" in value else value


def cases(name: str) -> Iterator[Any]:
    """Each case of a dialect, with the dialect's name and the first line of its file."""
    first, *lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    plain = json.loads(first)
    hook = partial(expand, plain.get("shared", {}))
    for number, case in enumerate([{"send": {}, "is": {}}, *(json.loads(line, object_hook=hook) for line in lines)], 1):
        about = case.get("case") or json.dumps(case["send"])[:50]
        yield pytest.param(name, plain, case, id=f"{name}:{number} {about}")


def differences(request: Mapping[str, Any], plain: Mapping[str, Any]) -> Case:
    """What a request has that a plain one has not; null for what it lacks."""
    names = [name for name in {**plain, **request} if request.get(name) != plain.get(name)]
    return {
        name: differences(request.get(name, {}), plain.get(name, {})) if name in PARTIAL else request.get(name)
        for name in names
    }


def contains(whole: object, part: object) -> bool:
    """Whether all fields of ``part`` are in ``whole``; texts only have to begin alike."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(contains(whole.get(name), inner) for name, inner in part.items())
    return whole == part or (isinstance(whole, str) and isinstance(part, str) and whole.startswith(part))


def shown(value: Any) -> Any:
    """The value with the JSON objects that are texts in it decoded."""
    if isinstance(value, dict):
        return {name: shown(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shown(inner) for inner in value]
    return json.loads(value) if isinstance(value, str) and value[:1] + value[-1:] == "{}" else value


@pytest.mark.parametrize(("name", "plain", "case"), [case for name in DIALECTS for case in cases(name)])
def test_a_body_is_a_request_or_refused(name: str, plain: Case, case: Case) -> None:
    dialect = DIALECTS[name](case)
    body = plain["plain"] | case["send"]
    raw = json.dumps({field: value for field, value in body.items() if field not in case.get("without", ())}).encode()
    if "is" in case:
        request = dialect.parse(raw)
        assert differences(shown(json.loads(msgspec.json.encode(request))), plain["is"]) == case["is"]
        assert decode_request(encode_request(request)) == request
        return
    with pytest.raises(RequestRefused) as refused:
        dialect.parse(raw)
    problem = refused.value.problem
    reply = dialect.error(problem)
    status, param, code, words = [*case["error"], ""][:4]
    assert (reply.status, problem.param, problem.code) == (status, param, code)
    assert words in problem.message
    assert contains(json.loads(reply.body), case.get("reply", {}))
