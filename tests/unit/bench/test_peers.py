"""Peers of the benchmark: the reason why one can't be measured is reported, and the others are measured anyway."""

import sys
from pathlib import Path

import pytest

from bench.peers import comparison, shapes
from bench.peers.comparison import ALONE, OURS, Contestant, Load, Run
from bench.peers.environment import Unavailable, run
from bench.peers.server import Server
from worker.model.gguf import read_header
from worker.model.local import default_model


def test_a_failed_command_is_reported_with_its_last_output() -> None:
    command = "print('first', flush=True); raise SystemExit('no compiler here')"
    with pytest.raises(Unavailable, match=r"it can't be made: first / no compiler here"):
        run([sys.executable, "-c", command], "it can't be made")


def test_a_server_that_ends_is_reported_with_its_last_output(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not start: no such model"):
        Server([sys.executable, "-c", "raise SystemExit('no such model')"], 1, tmp_path / "log")


def test_a_server_that_fails_under_load_has_a_row_with_the_reason_and_the_others_go_on() -> None:
    def steady(rate: float) -> Contestant:
        return Contestant(str(rate), lambda prompts, tokens: Run(rate, 0.01, tokens / rate))

    def breaks(prompts: list[str], tokens: int) -> Run:
        if tokens == comparison.TOKENS:
            raise Unavailable("1 of 8 answers were not complete")
        return Run(1.0, 0.01)

    alone, ours, peer, broken = steady(100.0), steady(90.0), steady(45.0), Contestant("broken", breaks)
    alone.name, ours.name = ALONE, OURS
    comparison.compare([alone, ours, peer, broken], Load(8), runs=3)
    rows = {row["server"]: row for row in comparison.rows_of([alone, ours, peer, broken], Load(8))}
    assert rows[OURS]["to the engine alone"] == "0.90 (0.90-0.90)"
    assert rows[peer.name]["ours to it"] == "2.00 (2.00-2.00)"
    assert rows[peer.name]["ours to its"] == "0.50 (0.50-0.50)"
    assert rows["broken"]["failure"] == "1 of 8 answers were not complete"
    assert rows["broken"]["tokens/s"] == ""
    assert len(peer.runs) == 3


def test_a_model_of_another_size_has_the_default_models_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(shapes.SHAPES, "tiny", shapes.Shape(2, 128, 256, 4, 2))
    made = read_header(shapes.random_model("tiny")).metadata  # which checks that no tensor is missing
    own = read_header(default_model()).metadata
    assert (made["llama.block_count"], made["llama.embedding_length"], made["general.file_type"]) == (2, 128, 2)
    assert made["tokenizer.chat_template"] == own["tokenizer.chat_template"]
