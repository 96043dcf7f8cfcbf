"""Workers send no telemetry."""

import subprocess
import sys

CODE = """
import worker
import sys
import openvino_genai
print([name for name, module in sys.modules.items() if module and ("telemetry" in name or ".ovc" in name)])
"""


def test_openvino_reports_no_import() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]"]
