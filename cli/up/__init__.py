"""``vinoqueue up``: runs a store, one worker and one API replica on one machine."""

from cli.up.supervisor import run

__all__ = ["run"]
