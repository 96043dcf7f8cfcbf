"""The code of the tutorials runs as it is written."""

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, fleet
from tests.support.tutorials import FOLDER, STORE, all_blocks, blocks, run

RUN = {
    "first-chat": (4, "The capital of France is Paris"),
    "langchain": (2, "country="),
    "batch-jobs": (3, "0 The capital of France is Paris"),
}
"""Tutorials whose runnable blocks need nothing but the service: how many these are, and what one of them prints."""

ELSEWHERE = {"images", "second-host"}
"""Tutorials that need other models or workers: tests/acceptance/test_image_responses.py, and below."""

NOT_RUN = {
    "make run\n": "is 'vinoqueue up', as in tests/integration/test_up.py",
    "make install\n.venv/bin/vinoqueue worker --redis-url": "does not end; started below",
    "export OPENAI_BASE_URL": "does nothing by itself; used below",
    "model = ": "configures Codex; read below",
    "docker compose": "needs Docker",
    "export VINOQUEUE_HOST": "needs Docker",
    "RENDER_GROUP=": "needs Docker and a GPU",
    ".venv/bin/vinoqueue worker --device GPU": "needs a GPU",
    ".venv/bin/vinoqueue up --model": "needs a model of several gigabytes",
    "export ANTHROPIC_BASE_URL": "needs Claude Code",
}
"""Beginnings of the other blocks, and why they are not run as they are."""


@pytest.mark.parametrize("name", RUN)
def test_a_tutorial(real_fleet: Fleet, tmp_path: Path, name: str) -> None:
    outputs = [run(block, real_fleet, tmp_path) for block in blocks(name)]
    count, printed = RUN[name]
    assert len(outputs) == count
    assert any(printed in output for output in outputs)


def test_every_block_is_run_or_can_not_be() -> None:
    names = {page.stem for page in FOLDER.glob("*.md")}
    assert {name for name in names if list(blocks(name))} == RUN.keys() | ELSEWHERE
    others = [block.code for name in names for block in all_blocks(name) if not block.runnable]
    assert {next(begin for begin in NOT_RUN if code.startswith(begin)) for code in others} == NOT_RUN.keys()


def test_a_worker_of_another_host_joins(tmp_path: Path) -> None:
    (started,) = (block.code for block in all_blocks("second-host") if "vinoqueue worker" in block.code)
    command = started.splitlines()[-1].replace(STORE, "{url}")
    (look,) = blocks("second-host")
    with fleet(tmp_path) as running:
        running.start(*shlex.split(command.format(url=running.url))[1:])
        running.until(lambda: running.workers("serving"), "the worker to serve")
        assert "serving" in run(look, running, tmp_path)


def test_agents_are_led_to_the_service(real_fleet: Fleet, tmp_path: Path) -> None:
    (configuration,) = (block.code for block in all_blocks("agents") if block.language == "toml")
    codex = tomllib.loads(configuration)
    assert codex["model_providers"][codex["model_provider"]]["wire_api"] == "responses"
    (variables,) = (block for block in all_blocks("agents") if "OPENAI_BASE_URL" in block.code)
    ask = f"{sys.executable} -c 'import openai; print(openai.OpenAI().models.list().data[0].id)'\n"
    assert run(variables._replace(code=variables.code + ask), real_fleet, tmp_path) == "SmolLM2-135M-Instruct\n"
