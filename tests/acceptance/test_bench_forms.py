"""``vinoqueue bench forms`` on a tiny model."""

from pathlib import Path

import pytest

from bench import forms
from tests.support.paths import MODELS
from worker.model.local import resolve

TINY = str(MODELS / "qwen2-byte-level-bpe")


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.report.RESULTS", tmp_path)


def test_each_form_of_a_folder_has_its_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = forms.run(tmp_path, model=TINY, seconds=1800)["rows"]
    assert [row.pop("settings") for row in rows] == ["", "--engine stateful", "--prompt-lookup"]
    assert all(rate > 0 for row in rows for rate in row.values())
    printed = capsys.readouterr().out
    assert f"Fastest with 1 stream: vinoqueue worker --model {TINY}" in printed
    assert "Fastest with 8 streams" in printed


def test_what_is_not_ready_in_time_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = forms.run(tmp_path, model=TINY, seconds=0)["rows"]
    assert not any(rate for row in rows for name, rate in row.items() if name != "settings")
    assert "Fastest" not in capsys.readouterr().out


def test_a_file_has_the_forms_of_its_weights_too() -> None:
    settings = [forms.flags(form) for form in forms.forms_of(resolve("default"))]
    assert settings == ["--weights original", "--weights int8", "--engine stateful", "--prompt-lookup"]
