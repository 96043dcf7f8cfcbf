"""Vinoqueue's worker: a supervisor process with an engine process, a prompt process and a grammar process."""

import locale
import sys

# OpenVINO changes the case of names by the locale's letters, and the Turkish "i" is another one.
try:
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
except locale.Error:
    locale.setlocale(locale.LC_CTYPE, "C")
# Disables telemetry: importing OpenVINO reports to Google Analytics. Without this package, OpenVINO and NNCF use a
# built-in stub.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
# The converter of other frameworks' models, which OpenVINO imports at its start, and does without.
sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]
