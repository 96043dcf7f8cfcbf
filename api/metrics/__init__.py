"""Prometheus metrics. ``catalogue`` declares them; docs/metrics.md is generated from it."""

from api.metrics.page import Metrics

__all__ = ["Metrics"]
