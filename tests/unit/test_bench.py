"""The bench's parts and curves. What its measuring parts compute is in test_bench_measuring.py."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.curves import overhead, peers, scale
from bench.main import PARTS
from cli.bench import PARTS as NAMED
from cli.bench import bench
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

    assert completed("lo").split() == ["plain,load", "plain,logits"]
    assert completed("pr").split() == ["plain,prefill", "plain,prefix"]


def test_an_unknown_part_is_a_usage_error() -> None:
    result = CliRunner().invoke(bench, ["plumbing", "nothing"])
    assert (result.exit_code, "'nothing' is not one of 'overhead'" in result.output) == (2, True)


def test_percentiles_are_interpolated() -> None:
    assert [percentile([1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert percentile([5.0], 0.99) == 5.0


def test_options_go_to_the_parts_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def part(folder: Path, *, runs: int = 1, sizes: tuple[int, ...] = (), model: str = "") -> dict[str, object]:
        seen.extend((folder.is_dir(), runs, sizes, model))
        return {}

    monkeypatch.setitem(PARTS, "images", part)
    assert CliRunner().invoke(bench, ["images", "--runs", "3", "--sizes", "1,8", "--model", "./vlm"]).exit_code == 0
    assert seen == [True, 3, (1, 8), "./vlm"]
    result = CliRunner().invoke(bench, ["images", "streams", "--runs", "3"])
    assert (result.exit_code, len(seen)) == (2, 4)
    assert "'streams' has no option --runs" in result.output


@pytest.mark.parametrize("sizes", ["", "1,", "0", "-1", "one", "1;2"])
def test_sizes_are_numbers(sizes: str) -> None:
    result = CliRunner().invoke(bench, ["images", "--sizes", sizes])
    assert result.exit_code == 2
    assert "--sizes" in result.output


def test_the_engine_alone_is_drawn_from_the_ratio() -> None:
    rows = [
        {"concurrency": 1, "tokens/s": 95.0, "ratio to the engine alone": 0.95},
        {"concurrency": 8, "tokens/s": 400.0, "ratio to the engine alone": 0.8},
    ]
    curves = overhead(rows)
    assert [label for label, _, _ in curves.lines] == ["the engine alone", "vinoqueue"]
    assert curves.lines[0][1:] == ([1.0, 8.0], [100.0, 500.0])
    assert curves.lines[1][1:] == ([1.0, 8.0], [95.0, 400.0])


def test_a_server_that_failed_has_no_point_nor_has_a_load_of_long_prompts() -> None:
    rows = [
        {"server": "vinoqueue", "concurrency": 1, "words more": 0, "tokens/s": 100.0},
        {"server": "another", "concurrency": 1, "words more": 0, "tokens/s": 80.0},
        {"server": "vinoqueue", "concurrency": 8, "words more": 0, "tokens/s": 500.0},
        {"server": "another", "concurrency": 8, "words more": 0, "tokens/s": ""},
        {"server": "a third", "concurrency": 1, "words more": 0, "tokens/s": ""},
        {"server": "vinoqueue", "concurrency": 1, "words more": 300, "tokens/s": 70.0},
    ]
    assert peers(rows).lines == [("vinoqueue", [1.0, 8.0], [100.0, 500.0]), ("another", [1.0], [80.0])]


def test_scale_has_a_line_for_each_number_of_replicas_and_one_ideal() -> None:
    rows = [
        {"workers": 1, "replicas": 1, "ideal tokens/s": 640.0, "tokens/s": 630.0},
        {"workers": 8, "replicas": 1, "ideal tokens/s": 5120.0, "tokens/s": 4900.0},
        {"workers": 8, "replicas": 2, "ideal tokens/s": 5120.0, "tokens/s": 5000.0},
    ]
    assert scale(rows).lines == [
        ("ideal", [1.0, 8.0], [640.0, 5120.0]),
        ("1 API replica", [1.0, 8.0], [630.0, 4900.0]),
        ("2 API replicas", [8.0], [5000.0]),
    ]
