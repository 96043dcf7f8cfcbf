"""``vinoqueue bench embed`` on a tiny model: each part runs, and the engine alone computes the service's vectors."""

from pathlib import Path

import pytest

from bench import embed


def test_every_part_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bench.report.RESULTS", tmp_path)
    monkeypatch.setattr(embed, "QUEUED", (*embed.QUEUED[:1], ("100 of another key", 100, 1)))
    found = embed.run(tmp_path, quick=True)
    assert {part: len(rows) for part, rows in found.items()} == {
        "indexing": 2,
        "queries": 3,
        "CPU": 2,
        "chats": 2,
        "queue": 2,
    }
    printed = capsys.readouterr().out
    assert all(f"embed, {part}: " in printed for part in found)
