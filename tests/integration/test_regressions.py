"""What a token costs, in counts that no machine changes, stays within the budget."""

from pathlib import Path

from bench import hot_path, regressions


def test_the_counts_are_within_their_budgets(tmp_path: Path) -> None:
    walked = hot_path.walk(tmp_path)
    assert walked.tokens == hot_path.STREAMS * hot_path.TOKENS
    alone = hot_path.walk(tmp_path / "alone", 1)
    complaints = regressions.complaints(
        regressions.counts(walked, alone) | regressions.modules(), regressions.read_budget()
    )
    assert not complaints, "\n".join(complaints)


def test_a_count_over_its_budget_is_named() -> None:
    budget = {"publishes a step": 1.0, "bytes a token": 10.0}
    assert regressions.complaints({"publishes a step": 1.0, "bytes a token": 10.0}, budget) == []
    (complaint,) = regressions.complaints({"publishes a step": 1.01, "bytes a token": 9.0}, budget)
    assert "'publishes a step' is 1.010" in complaint
    assert regressions.REFRESH in complaint


def test_a_count_without_a_budget_and_a_budget_without_a_count_are_named() -> None:
    unknown, gone = regressions.complaints({"new": 1.0}, {"old": 1.0})
    assert "'new' has no budget" in unknown
    assert "'old'" in gone
