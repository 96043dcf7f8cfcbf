"""What bodies become, and what is refused: the cases of ``cases/*.jsonl``, a file for each dialect.

The first line of a file has a ``plain`` body, and the request that it ``is``. Each other line is a case: ``send`` are
the fields that the plain body gets, ``without`` those that it loses, and ``headers``, ``query`` and ``serving`` are
what else the dialect reads. ``is`` is what differs in the request, with JSON texts as objects. A body that is refused
has an ``error`` instead: status, param, code, and perhaps words of the message; ``reply`` are parts of the reply.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import decode_request, encode_request
from tests.unit.api.dialects.recorded import NAMES, Case, cases, made

FOLDER = Path(__file__).parent / "cases"
PARTIAL = ("sampling", "defaults", "echoed")
"""Parts of a request of which a case has only what differs."""


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


@pytest.mark.parametrize(("name", "plain", "case"), [case for name in NAMES for case in cases(FOLDER, name)])
def test_a_body_is_a_request_or_refused(name: str, plain: Case, case: Case) -> None:
    dialect = made(name, case)
    body = plain["plain"] | case["send"]
    raw = json.dumps({field: value for field, value in body.items() if field not in case.get("without", ())}).encode()
    if "is" in case:
        request = dialect.parse(raw)
        parsed = json.loads(msgspec.json.encode(request))
        parsed |= parsed.pop("response", {})
        assert differences(shown(parsed), plain["is"]) == case["is"]
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
