"""Starts the service with a model of your own, asks it something, and ends the service.

The model is a GGUF file, a folder with OpenVINO IR, or a name on the Hugging Face Hub.
"""

import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import openai

PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8017
VINOQUEUE = Path(sys.executable).with_name("vinoqueue")  # in the environment of this Python
service = subprocess.Popen([VINOQUEUE, "up", "--model", sys.argv[1], "--port", str(PORT)])
try:
    while service.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready"):
            break
        time.sleep(0.2)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="none") as client:
        model = client.models.list().data[0].id
        print("serves", model)
        print(client.completions.create(model=model, prompt="Once upon a time", max_tokens=16).choices[0].text)
finally:
    service.terminate()
    service.wait()
