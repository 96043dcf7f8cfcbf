"""The code of README and tutorials runs as it is written; what needs Docker is run by tests/images/test_compose.py."""

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.huggingface_server import HubServer
from tests.support.embedding_texts import model_folder
from tests.support.fleet import PATIENT, SIMULATED, Fleet, fleet
from tests.support.paths import MODELS, ROOT
from tests.support.tutorials import PAGES, STORE, WITH_DOCKER, all_blocks, blocks, run
from worker.model.cache import user_cache

RUN = {
    "README": (1, "Paris"),
    "first-chat": (4, "France: Paris"),
    "langchain": (2, "country="),
    "batch-jobs": (3, "0 Capital of France: Paris"),
}
"""Tutorials whose runnable blocks need nothing but the service: how many these are, and what one of them prints."""

ELSEWHERE = {"five-models", "images", "retrieval", "second-host", "team"}
"""Tutorials that need other models, workers or keys: tests/acceptance/test_image_responses.py, and below."""

OTHERWISE = {
    "make run": "is 'vinoqueue up', as in tests/integration/test_up.py",
    "make install\n.venv/bin/vinoqueue worker --redis-url": "does not end; started below",
    "export OPENAI_BASE_URL": "does nothing by itself; used below",
    "[models.small]": "is the catalogue; read below",
    "[models.chat]": "is the catalogue; read below",
    ".venv/bin/vinoqueue up --models": "does not end; started below",
    "model = ": "configures Codex; read below",
    "export OPENAI_ADMIN_KEY": "does nothing by itself; used below",
}
"""Prefixes of the other blocks, and how they are run. What is not run at all says so in its page."""

NOTES = {
    "france/lyon.md": "# Lyon\n\nThe office in Lyon opens at nine in the morning.\n\nThe key is with the porter.",
    "food.md": "Bread is baked at night.\n\nThe canteen has soup on Fridays.",
    "cars.md": "Cars are washed in the yard.\n\nTyres are changed in spring.",
}

_INDENTED = re.compile(r"^ {4,}(?:\w+=\S+ )*(?:docker|vinoqueue|make|curl|pip|kubectl|helm|optimum-cli) ", re.MULTILINE)


@pytest.mark.parametrize("name", RUN)
def test_a_tutorial(real_fleet: Fleet, tmp_path: Path, name: str) -> None:
    outputs = [run(block, real_fleet, tmp_path) for block in blocks(name)]
    count, printed = RUN[name]
    assert len(outputs) == count
    assert any(printed in output for output in outputs)


def test_every_block_is_run_or_says_why_not() -> None:
    assert {name for name in PAGES if list(blocks(name))} == RUN.keys() | ELSEWHERE
    assert [name for name in PAGES if _INDENTED.search(PAGES[name].read_text(encoding="utf-8"))] == []
    every = [(name, block) for name in PAGES for block in all_blocks(name) if not (block.why_not or block.runnable)]
    assert {name for name, block in every if block.with_docker} == {*WITH_DOCKER}
    others = [block.code for _, block in every if not block.with_docker]
    assert {next(begin for begin in OTHERWISE if code.startswith(begin)) for code in others} == OTHERWISE.keys()


def test_the_notes_of_the_chart_have_no_commands() -> None:
    notes = (ROOT / "deploy" / "helm" / "vinoqueue" / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    assert not re.search(r"^\s*(?:\w+=\S+ )*(?:kubectl|helm|docker) ", notes, re.MULTILINE)


def test_a_worker_of_another_host_joins(tmp_path: Path) -> None:
    (started,) = (block.code for block in all_blocks("second-host") if "vinoqueue worker" in block.code)
    command = started.splitlines()[-1].replace(STORE, "{url}")
    (look,) = blocks("second-host")
    with fleet(tmp_path) as running:
        running.start(*shlex.split(command.format(url=running.url))[1:], *SIMULATED)
        running.until(lambda: running.workers("serving"), "the worker to serve")
        assert "serving" in run(look, running, tmp_path)


def test_several_models_share_a_node(tmp_path: Path) -> None:
    """The ids are those of the tutorial; the models are tiny, from a stand-in for the hub."""
    catalogue, start, *_ = all_blocks("five-models")
    sources = [model["source"] for model in tomllib.loads(catalogue.code)["models"].values()]
    files = {file.name: file.read_bytes() for file in (MODELS / "qwen2-byte-level-bpe").iterdir()}
    hub = HubServer({source: files for source in sources if source.startswith("OpenVINO/")})
    shutil.copytree(MODELS / "llava-random", tmp_path / "Qwen2.5-VL-3B-Instruct")
    (tmp_path / "models.toml").write_text(catalogue.code.replace('"./', f'"{tmp_path}/'))
    # Converted weights are shared, but what is measured of tiny models does not hold for those of these names.
    cache = tmp_path / "cache" / "vinoqueue"
    cache.mkdir(parents=True)
    for entry in user_cache().glob("*/"):
        (cache / entry.name).symlink_to(entry)
    caches = {"HF_HOME": str(tmp_path / "hub"), "XDG_CACHE_HOME": str(cache.parent)}
    options = shlex.split(start.code.replace("models.toml", str(tmp_path / "models.toml")))[2:]
    try:
        with fleet(tmp_path, lease=PATIENT) as running:
            running.api("--queue-timeout", "240")
            node = running.start("node", *options, HF_ENDPOINT=hub.endpoint, **caches).popen
            running.until(lambda: node.poll() is not None or running.workers("serving"), "the small model")
            listed, state, control = (run(block, running, tmp_path) for block in blocks("five-models"))
    finally:
        hub.close()
    assert "models: chat coder gpt-4o-mini reasoner small vision" in listed
    assert re.search(r"^small: .*Paris", listed, re.MULTILINE)
    assert re.search(r"^chat: ", listed, re.MULTILINE)
    assert re.search(r"^chat +\S+ +loaded: ", state, re.MULTILINE)
    assert re.search(r"^reasoner +\S+ +unloaded", state, re.MULTILINE)
    assert "The model 'coder' is loaded on" in control
    assert "Unloading the model 'coder'." in control


def test_answers_come_from_a_folder(tmp_path: Path) -> None:
    """The embedder is that of the tutorial; the chat model and the reranker are tiny, and know none of the words."""
    catalogue, _, *_ = all_blocks("retrieval")
    search, rank = blocks("retrieval")
    (tmp_path / "notes" / "france").mkdir(parents=True)
    for name, text in NOTES.items():
        (tmp_path / "notes" / name).write_text(text)
    tiny = {"default": MODELS / "qwen2-byte-level-bpe", "./bge-reranker-base": MODELS / "rerank-bert"}
    with fleet(tmp_path) as running:
        for name, model in tomllib.loads(catalogue.code)["models"].items():
            running.worker("--model", f"{name}={tiny.get(model['source'], model_folder())}")
        running.api()
        found = run(search, running, tmp_path).splitlines()
        ranked = run(rank, running, tmp_path).splitlines()
    assert re.fullmatch(r"0\.[5-9]\d lyon\.md: The office in Lyon opens at nine.*", found[0])
    assert len(found) > 3
    assert len(ranked) == 2


def test_a_team_shares_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = (block for block in all_blocks("team") if block.code.startswith("export OPENAI_ADMIN_KEY"))
    create, ask, usage, more, audit = blocks("team")
    simulated = [word.replace("sim", "SmolLM2-135M-Instruct") if word == "sim" else word for word in SIMULATED]
    with fleet(tmp_path) as running:
        monkeypatch.setenv("VINOQUEUE_REDIS_URL", running.url)
        running.worker(*simulated)
        running.api()
        secret = run(key._replace(code=key.code + "echo $OPENAI_ADMIN_KEY\n"), running, tmp_path).strip()
        monkeypatch.setenv("OPENAI_ADMIN_KEY", secret)
        known = {"authorization": f"Bearer {secret}"}
        running.until(lambda: running.request("GET", "/v1/models", None, known)[0] == 200, "the key to be known")
        assert run(create, running, tmp_path) == "11 keys, team Physics\n"
        assert (summary := run(ask, running, tmp_path)).startswith("member 1 used ")
        used = run(usage, running, tmp_path)
        assert "member 1" in used
        assert "Physics" in used
        assert run(more, running, tmp_path) == f"member 1 has used {summary.split()[3]} of 2000000 tokens\n"
        assert run(audit, running, tmp_path).count("api_key.") == 12


def test_agents_are_led_to_the_service(real_fleet: Fleet, tmp_path: Path) -> None:
    (configuration,) = (block.code for block in all_blocks("agents") if block.language == "toml")
    codex = tomllib.loads(configuration)
    assert codex["model_providers"][codex["model_provider"]]["wire_api"] == "responses"
    (variables,) = (block for block in all_blocks("agents") if "OPENAI_BASE_URL" in block.code)
    ask = f"{sys.executable} -c 'import openai; print(openai.OpenAI().models.list().data[0].id)'\n"
    assert run(variables._replace(code=variables.code + ask), real_fleet, tmp_path) == "SmolLM2-135M-Instruct\n"
