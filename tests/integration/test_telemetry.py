"""Workers send no telemetry."""

import subprocess
import sys

CODE = """
import worker
import openvino_genai
from openvino.tools.ovc import telemetry_utils
print(telemetry_utils.tm.__name__)
"""


def test_openvino_reports_no_import() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["openvino.tools.ovc.telemetry_stub"]
