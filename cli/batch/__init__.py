"""``vinoqueue batch``: submit batches and follow them."""

from cli.batch.commands import batch

__all__ = ["batch"]
