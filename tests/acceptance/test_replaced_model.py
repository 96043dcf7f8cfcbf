"""A model's files are replaced while it is served, and then one process of its worker ends."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.support.fleet import PATIENT, Fleet, fleet
from tests.support.gguf_files import tiny_llama
from tests.support.processes import family

MESSAGES = [{"role": "user", "content": "the end"}]


def children(worker: int) -> dict[str, int]:
    """The subprocesses of a worker by their package."""
    found = {}
    for pid in family(worker)[1:]:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        for name in ("engine", "prompt", "grammar"):
            if f"worker.{name}.child" in command:
                found[name] = pid
    return found


def chat(running: Fleet, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": "chat", "messages": MESSAGES, "max_tokens": 8, "temperature": 0} | fields)
    status, _, reply = running.request("POST", "/v1/chat/completions", body)
    return status, json.loads(reply)


def text_and_fingerprint(running: Fleet) -> tuple[str, str]:
    running.until(lambda: chat(running)[0] == 200, "the model to be served")
    _, reply = chat(running)
    return reply["choices"][0]["message"]["content"], reply["system_fingerprint"]


def test_a_replaced_model_is_loaded_as_a_whole(tmp_path: Path) -> None:
    """One process after the other ends, beside the one model and the other in turn."""
    model, other = tmp_path / "model.gguf", tmp_path / "other"
    model.write_bytes(tiny_llama(layers=1))
    with fleet(tmp_path, lease=PATIENT) as running:
        running.api()
        worker = running.worker("--model", f"chat={model}", "--precision", "exact")
        known = {1: text_and_fingerprint(running)}
        for process, old, new in (("engine", 1, 2), ("prompt", 2, 1), ("grammar", 1, 2)):
            running.until(lambda: len(children(worker.popen.pid)) == 3, "all processes to run")
            before, start = children(worker.popen.pid), len(worker.log.read_text())
            other.write_bytes(tiny_llama(layers=new))
            other.replace(model)
            assert text_and_fingerprint(running) == known[old]  # as long as no process ends
            os.kill(before[process], signal.SIGKILL)

            def log(start: int = start) -> str:
                return worker.log.read_text()[start:]

            if process == "grammar":  # the next grammar starts it
                schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
                chat(running, response_format=schema)
            running.until(lambda: "loads the model as a whole, because the model has changed" in log(), "the log")
            running.until(lambda: " serves chat " in log(), "the new model")
            assert text_and_fingerprint(running) == known.setdefault(new, text_and_fingerprint(running))
            running.until(lambda: len(children(worker.popen.pid)) == 3, "all processes to run")
            assert not {*before.values()} & {*children(worker.popen.pid).values()}
            assert f"loads the model as a whole, because the model has changed: {model}\n" in log()
            assert ", because the model has changed\n" in log()  # a stage of loading, as in the status
        assert known[1] != known[2]


def test_a_model_that_is_still_written_is_tried_again(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(tiny_llama())
    with fleet(tmp_path, lease=PATIENT) as running:
        running.api("--worker-grace", "1")
        worker = running.worker("--model", f"chat={model}")
        _, before = text_and_fingerprint(running)
        model.write_bytes(tiny_llama(layers=2)[:-1000])
        os.kill(children(worker.popen.pid)["engine"], signal.SIGKILL)
        running.until(lambda: "the changed model can't be loaded, trying again in 1 s" in worker.log.read_text(), "it")
        model.write_bytes(tiny_llama(layers=2))
        assert text_and_fingerprint(running)[1] != before
