"""The table of docs/metrics.md, generated from the catalogue of metrics.

``python -m tools.docs.metrics_table docs/metrics.md`` writes it.
"""

from api.metrics.catalogue import CATALOGUE, Description
from cli.base.options import flag
from tools.docs.generated import replaced, rewrite

BEGIN = "<!-- metrics: generated -->\n"
END = "<!-- /metrics -->\n"


def inserted(text: str) -> str:
    """``text`` of the page with the current table between its markers.

    Raises :class:`ValueError` when the markers are missing.
    """
    return replaced(text, BEGIN, END, table())


def table() -> str:
    """The table of all metrics."""
    rows = ["| Metric | Type | Labels | Meaning | Useful when |", "|---|---|---|---|---|", *map(_row, CATALOGUE)]
    return "\n".join(rows) + "\n"


def _row(metric: Description) -> str:
    meaning = metric.meaning
    if metric.optional:
        meaning += f" Only with `{flag(metric.optional)}`."
    return f"| `{metric.sample}` | {metric.kind} | {', '.join(metric.labels)} | {meaning} | {metric.look} |"


if __name__ == "__main__":
    rewrite(inserted)
