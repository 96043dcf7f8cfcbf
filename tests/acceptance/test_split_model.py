"""A split GGUF file is served as the whole one is: with int8 weights, and with logits."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import PATIENT, fleet
from tests.support.gguf_files import split_llama, tiny_llama


@pytest.mark.parametrize("weights", ["int8", "original"])
def test_a_split_model_is_served_as_the_whole_one(weights: str, tmp_path: Path) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    split_llama(folder, "tiny-Q4_1", 3)
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(tiny_llama())
    body = {"messages": [{"role": "user", "content": "the end"}], "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    with fleet(tmp_path, lease=PATIENT) as running:
        running.api()

        def chosen(source: Path, name: str) -> list[dict[str, Any]]:
            options = ("--model", str(source), "--weights", weights, "--precision", "exact", "--logits", "on")
            worker = running.worker(*options)
            request = json.dumps(body | {"model": name, "temperature": 0})
            status, _, answer = running.request("POST", "/v1/chat/completions", request)
            assert status == 200, answer
            worker.stop()
            running.processes.remove(worker)
            found: list[dict[str, Any]] = json.loads(answer)["choices"][0]["logprobs"]["content"]
            return found

        assert chosen(folder, "tiny") == chosen(whole, "whole")
