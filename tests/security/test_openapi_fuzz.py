"""Schemathesis against a running replica: whatever a body or parameter holds, the answer is one that `openapi.json`
documents, and no request fails with a server error."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from api.build import openapi_document
from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, Fleet, fleet
from tests.support.fuzzing import cases

CASES = 5

DOCUMENT = json.loads(openapi_document())
ENDLESS = {"/v1/fleet/events"}
OPERATIONS = [
    (path, method) for path, operations in DOCUMENT["paths"].items() for method in operations if path not in ENDLESS
]
REFUSABLE = [
    (path, method)
    for path, method in OPERATIONS
    if "requestBody" in DOCUMENT["paths"][path][method]
    or any(parameter["in"] == "query" for parameter in DOCUMENT["paths"][path][method].get("parameters", ()))
]
"""Operations that take something other than a path, so that a request can violate the schema."""


@cache
def schema() -> Any:
    """What generates the requests. Importing it takes half a second, which at module level every process would."""
    import schemathesis

    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A replica with small answers, so that a case takes milliseconds."""
    with fleet(tmp_path_factory.mktemp("openapi"), lease=PATIENT) as running:
        running.worker("--engine", "simulated", "--model", "sim=[[tokens 4]]", "--sim-step", "0.001")
        running.api()
        schema().config.update(base_url=f"http://127.0.0.1:{running.port}")
        yield running


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_requests_that_fit_the_schema(target: Fleet, path: str, method: str) -> None:
    # Rules between fields are not part of the schema, so a 4xx is a good answer here.
    fuzz(target, path, method, fits=True)


@pytest.mark.parametrize(("path", "method"), REFUSABLE)
def test_requests_that_violate_the_schema(target: Fleet, path: str, method: str) -> None:
    fuzz(target, path, method, fits=False)


def fuzz(target: Fleet, path: str, method: str, *, fits: bool) -> None:
    """Send generated requests, and check each answer against the document."""
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    operation = schema()[path][method]
    mode, excluded = (GenerationMode.POSITIVE, [positive_data_acceptance]) if fits else (GenerationMode.NEGATIVE, None)

    @settings(max_examples=cases(CASES), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(mode))
    def check(case: Any) -> None:
        if fits and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "sim"
        case.call_and_validate(timeout=PATIENCE, excluded_checks=excluded)

    check()
    assert target.status("/ready") == 200
    assert "Traceback" not in target.logs()
