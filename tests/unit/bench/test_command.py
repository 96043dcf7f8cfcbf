"""The bench's parts. What its measuring parts compute is in test_bench_measuring.py."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.main import PARTS
from cli.bench.parts import PARTS as NAMED
from cli.bench.parts import bench
from cli.bench.report import percentile


def test_the_command_names_every_part() -> None:
    assert tuple(NAMED) == tuple(PARTS)


def test_an_installed_package_has_no_benchmarks_and_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bench", None)
    result = CliRunner().invoke(bench, ["regressions"])
    assert result.exit_code == 1
    assert "only from Vinoqueue's repository" in result.output


def test_names_of_parts_and_subcommands_are_completed() -> None:
    def completed(*words: str) -> str:
        asked = {"_BENCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["bench", *words]), "COMP_CWORD": "1"}
        return CliRunner().invoke(bench, [], prog_name="bench", env=asked).output

    assert completed("lo").split() == ["plain,load"]
    assert completed("pr").split() == ["plain,prefix"]


def test_an_unknown_part_is_a_usage_error() -> None:
    result = CliRunner().invoke(bench, ["capacity", "nothing"])
    assert (result.exit_code, "'nothing' is not one of 'overhead'" in result.output) == (2, True)


def test_percentiles_are_interpolated() -> None:
    assert [percentile([1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert percentile([5.0], 0.99) == 5.0


def test_options_go_to_the_parts_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def part(folder: Path, *, runs: int = 1, concurrencies: tuple[int, ...] = ()) -> dict[str, object]:
        seen.extend((folder.is_dir(), runs, concurrencies))
        return {}

    monkeypatch.setitem(PARTS, "overhead", part)
    assert CliRunner().invoke(bench, ["overhead", "--runs", "3", "--concurrencies", "1,8"]).exit_code == 0
    assert seen == [True, 3, (1, 8)]
    result = CliRunner().invoke(bench, ["overhead", "capacity", "--runs", "3"])
    assert (result.exit_code, len(seen)) == (2, 3)
    assert "'capacity' has no option --runs" in result.output


def test_the_model_of_forms_is_named_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def part(folder: Path, *, model: str = "default") -> dict[str, object]:
        seen.append(model)
        return {}

    monkeypatch.setitem(PARTS, "forms", part)
    assert CliRunner().invoke(bench, ["forms", "./a.gguf"]).exit_code == 0
    assert CliRunner().invoke(bench, ["forms"]).exit_code == 0
    assert seen == ["./a.gguf", "default"]


@pytest.mark.parametrize("sizes", ["", "1,", "0", "-1", "one", "1;2"])
def test_concurrencies_are_numbers(sizes: str) -> None:
    result = CliRunner().invoke(bench, ["overhead", "--concurrencies", sizes])
    assert result.exit_code == 2
    assert "--concurrencies" in result.output
