"""The compliance tests of llm-comply, in its three formats that are served here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import MODEL
from tests.support.fleet import SEEING, Fleet
from tests.support.fleet_fixture import fleet_fixture

TOOLS = {"anthropic": "anth-tool-calling", "openai-chat": "chat-tool-calling", "open-responses": "tool-calling"}
"""The test of each format that needs a model that follows grammars."""
NOT_SERVED = {"compact-response"}
"""Tests of what is refused by name."""


seeing_fleet = fleet_fixture(*SEEING)
"""A simulated model that reads images, and ends its texts."""


def run(served: Fleet, model: str, form: str, *options: str) -> dict[str, dict[str, Any]]:
    """Run the tests of a format; return their results by id."""
    command = [str(Path(sys.executable).with_name("llm-comply")), "--json", "--timeout", "900", "--format", form]
    command += ["--base-url", f"http://127.0.0.1:{served.port}/v1", "--api-key", "none", "--model", model, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = {result["id"]: result for result in json.loads(done.stdout)["results"]}
    assert results, done.stderr
    return results


def failures(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: result.get("errors") for name, result in results.items() if result["status"] == "failed"}


@pytest.mark.parametrize("form", TOOLS)
def test_all_but_tools(seeing_fleet: Fleet, form: str) -> None:
    results = run(seeing_fleet, "sim", form)
    # Reasoning is skipped for all models but those of the references.
    assert sum(result["status"] == "passed" for result in results.values()) >= 7
    assert failures(results).keys() - NOT_SERVED == {TOOLS[form]}, results


@pytest.mark.parametrize("form", TOOLS)
def test_tools(real_fleet: Fleet, form: str) -> None:
    assert failures(run(real_fleet, MODEL, form, "--filter", TOOLS[form])) == {}
