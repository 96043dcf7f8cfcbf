"""A real Valkey for tests."""

from bench.store import Store

__all__ = ["Store"]
