"""Engines in containers with a CPU quota."""

import json
from pathlib import Path

import pytest

from shared.runtime.placement import own_cpus
from tests.support.cpu_quota import cpu_quota
from tests.support.fleet import PATIENT, execute, fleet
from tests.support.gguf_files import tiny_llama


@pytest.mark.parametrize("command", ["worker", "node"])
def test_an_engine_has_no_more_threads_than_its_quota(command: str, tmp_path: Path) -> None:
    if len(own_cpus()) < 2:
        pytest.skip("needs two CPUs")
    model = tmp_path / "tiny.gguf"
    model.write_bytes(tiny_llama())
    catalogue = tmp_path / "models.toml"
    catalogue.write_text(f'[models.tiny]\nsource = "{model}"\nkeep = "always"\n')
    arguments = ("--model", str(model)) if command == "worker" else ("--models", str(catalogue))
    with cpu_quota(1), fleet(tmp_path, lease=PATIENT, launch=execute) as running:
        process = running.start(command, *arguments)
        running.until(lambda: running.workers("serving"), "the model to be served")
        (line,) = (line for line in process.log.read_text().splitlines() if " threads: " in line)
        assert "MB) on CPU, threads: 1 (CPU quota 1, " in line
        running.api()
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
        assert running.request("POST", "/v1/chat/completions", body)[0] == 200
