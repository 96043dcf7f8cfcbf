"""The errors recorded from the OpenAI service, asked of this parser."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.dialects.interface import MessagesMissing
from shared.protocol.errors import RequestRefused
from tests.unit.dialects.bodies import DIALECT, error_of

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "openai_errors.jsonl").read_text().splitlines()]

NEEDS_A_MODEL = {
    # The worker counts tokens, not the parser.
    "context_length_exceeded": None,
    # Unknown models are found behind the parser; test_missing_messages shows what it passes on.
    "model_not_found": "missing_required_parameter",
}


def _same(recorded: dict[str, Any]) -> bool:
    error = recorded["error"]
    # That model is made for audio; with any other the rule about `store` comes first, as another record shows.
    return error["code"] not in NEEDS_A_MODEL and "contain audio" not in error["message"]


@pytest.mark.parametrize(
    "recorded",
    [recorded for recorded in RECORDED if _same(recorded)],
    ids=lambda recorded: recorded["error"]["message"][:60],
)
def test_the_recorded_error_is_given(recorded: dict[str, Any]) -> None:
    assert error_of(json.dumps(recorded["request"]).encode()) == (recorded["status"], recorded["error"])


def test_only_errors_of_certain_models_differ() -> None:
    different = [recorded["error"]["message"][:40] for recorded in RECORDED if not _same(recorded)]
    assert different == [
        "This model's maximum context length is 1",
        "The model `foo` does not exist or you do",
        "This model requires that either input co",
    ]


def test_missing_messages_name_the_model_that_is_looked_for_first() -> None:
    with pytest.raises(MessagesMissing) as caught:
        DIALECT.parse(b'{"model": "foo"}')
    assert caught.value.model == "foo"
    assert caught.value.problem.code == "missing_required_parameter"


def test_a_body_without_model_and_messages_is_refused_for_the_model() -> None:
    with pytest.raises(RequestRefused) as caught:
        DIALECT.parse(b"{}")
    assert caught.value.problem.param == "model"
