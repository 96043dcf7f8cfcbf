"""``vinoqueue up``: store, worker and API on one machine, started, watched and ended together."""

from cli.up.supervisor import run

__all__ = ["run"]
