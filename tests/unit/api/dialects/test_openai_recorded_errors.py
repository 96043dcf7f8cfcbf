"""The errors recorded from the OpenAI service, asked of this parser."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.dialects.base.interface import MessagesMissing
from shared.protocol.errors import RequestRefused, modality_refused
from tests.unit.api.dialects.bodies import DIALECT, error_of

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "openai_errors.jsonl").read_text().splitlines()]

NEEDS_A_MODEL = {
    # The worker counts tokens, not the parser.
    "context_length_exceeded": None,
    # Unknown models are found behind the parser; test_missing_messages shows what it passes on.
    "model_not_found": "missing_required_parameter",
}

ONLY_SOME_MODELS = ("contain audio", "image_url is only supported", "'prediction' is not supported")
"""Parts of messages of other models than this parser assumes. Which models read images is known behind the parser."""
HARMLESS = ("'parallel_tool_calls' is only allowed",)
"""What OpenAI refuses, and nothing can go wrong with."""


def _same(recorded: dict[str, Any]) -> bool:
    error = recorded["error"]
    return error["code"] not in NEEDS_A_MODEL and not any(
        part in error["message"] for part in (*ONLY_SOME_MODELS, *HARMLESS)
    )


@pytest.mark.parametrize(
    "recorded",
    [recorded for recorded in RECORDED if _same(recorded)],
    ids=lambda recorded: recorded["error"]["message"][:60],
)
def test_the_recorded_error_is_given(recorded: dict[str, Any]) -> None:
    assert error_of(json.dumps(recorded["request"]).encode()) == (recorded["status"], recorded["error"])


def test_only_errors_of_certain_models_and_of_harmless_fields_differ() -> None:
    different = [recorded["error"]["message"][:40] for recorded in RECORDED if not _same(recorded)]
    assert sorted(different) == [
        "Invalid content type. image_url is only ",
        "Invalid value for 'parallel_tool_calls':",
        "The model `foo` does not exist or you do",
        "This model requires that either input co",
        "This model's maximum context length is 1",
        "Unsupported parameter: 'prediction' is n",
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


def test_an_image_for_a_model_that_reads_none_gets_the_recorded_error() -> None:
    (recorded,) = (recorded for recorded in RECORDED if "image_url is only" in recorded["error"]["message"])
    (image,) = DIALECT.parse(json.dumps(recorded["request"]).encode()).images
    reply = DIALECT.error(modality_refused("image_url", image.param).problem)
    assert (reply.status, json.loads(reply.body)["error"]) == (recorded["status"], recorded["error"])
