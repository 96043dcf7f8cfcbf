"""A server on OpenVINO GenAI's ``LLMPipeline`` from the package index: one request at a time, greedy, without usage."""

from pathlib import Path

from bench.peers.environment import Environment, run
from bench.peers.server import Server, start

ENVIRONMENT = Environment(
    name="openvino-openai-api-0.1.1",
    # The package lists 80 more at old versions, among them a notebook's and a trainer's; these are what it imports.
    tools=("openvino-genai==2026.4.1.0", "fastapi==0.165.0", "uvicorn==0.54.0"),
    packages=(
        "openvino-openai-api==0.1.1 --hash=sha256:04a9ac0e1f3b341911326f8e8c56c9023bf1bd43617432f4560cc40df7e16034",
    ),
)

_CONVERT = """
import json, sys
from pathlib import Path
import openvino_genai
model, folder = sys.argv[1:]
link = Path(folder) / "model.gguf"
if not link.exists():
    link.symlink_to(model)
openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
tokenizer = openvino_genai.Tokenizer(str(link), enable_save_ov_model=True)
(Path(folder) / "tokenizer_config.json").write_text(json.dumps({"chat_template": tokenizer.chat_template}))
"""


class OpenVINOOpenAIAPI:
    """The server on the model's own weights, which it wants as a folder of OpenVINO IR."""

    environment = ENVIRONMENT
    tells_tokens = False
    name = "openvino-openai-api"

    def start(self, model: Path, slots: int, folder: Path) -> Server:
        """Serve ``model``; there are no ``slots`` to set. Raises :class:`Unavailable` when that can't be."""
        return start(
            [str(ENVIRONMENT.program("openvino-openai-server")), "--model-path", str(_converted(model)),
             "--device", "CPU"],
            folder / f"openvino-openai-api-{slots}.log",
            ready="/openapi.json",
        )  # fmt: skip


def _converted(model: Path) -> Path:
    """The model as OpenVINO IR, converted once and stored in the server's folder."""
    made = ENVIRONMENT.folder / model.name.removesuffix(".gguf")
    if not (made / "tokenizer_config.json").exists():
        made.mkdir(exist_ok=True)
        run(
            [str(ENVIRONMENT.program("python")), "-c", _CONVERT, str(model), str(made)],
            f"{model.name} can't be converted",
        )
    return made
