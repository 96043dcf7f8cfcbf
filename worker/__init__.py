"""The worker: a supervisor process with an engine process, a prompt process and a grammar process."""

import sys

# Disables telemetry: importing OpenVINO reports to Google Analytics. Without this package, OpenVINO and NNCF use a
# built-in stub.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
