"""Prometheus metrics. ``catalogue`` declares them; docs/metrics.md is generated from it."""

from api.operations.metrics.page import Metrics

__all__ = ["Metrics"]
