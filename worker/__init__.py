"""The worker: a supervisor that claims and publishes, and the processes of the engine, the prompts and the grammars."""

import sys

# Importing OpenVINO tells Google Analytics of it. A service that people run for themselves tells nobody: without this
# package OpenVINO (and NNCF) use a stub of their own.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
