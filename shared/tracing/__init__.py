"""Tracing: spans of requests, exported by OpenTelemetry if an endpoint is configured. Otherwise, it is not imported."""

import os

from shared.runtime.settings import Settings
from shared.tracing.interface import NO_SPAN, NO_TRACING, Attributes, EndedSpan, Span, Tracing

__all__ = ["NO_SPAN", "NO_TRACING", "Attributes", "EndedSpan", "Span", "Tracing", "TracingUnavailable", "start_tracing"]

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The variables that turn tracing on."""


class TracingUnavailable(Exception):
    """Tracing is configured, but OpenTelemetry is not installed."""


def start_tracing(
    settings: Settings, *, service: str, instance: str, attributes: Attributes, makes_roots: bool
) -> Tracing:
    """Return this process's tracing. Its configuration is the setting ``otlp_traces_endpoint`` and OpenTelemetry's own
    environment variables; without an endpoint it is off.

    ``service``, ``instance`` and ``attributes`` describe this process; the environment takes precedence. Without
    ``makes_roots``, spans have a parent, whose sampling is followed. Raises :class:`TracingUnavailable`.
    """
    variable = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not (settings.otlp_traces_endpoint or variable):
        return NO_TRACING
    try:
        from shared.tracing.otlp import OtlpTracing
    except ModuleNotFoundError as error:
        source = "--otlp-traces-endpoint" if settings.otlp_traces_endpoint else variable
        raise TracingUnavailable(
            f"{source} turns tracing on, which needs a package that is not installed ({error.name}). Install it in "
            "Vinoqueue's repository (.venv/bin/pip install --editable '.[otel]'), or set OTEL_SDK_DISABLED=true."
        ) from None
    return OtlpTracing(
        settings.otlp_traces_endpoint,
        {"service.name": service, "service.instance.id": instance, **attributes},
        makes_roots=makes_roots,
    )
