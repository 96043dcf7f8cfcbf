"""Names of the formats of tool calls and reasoning: ours, and those of OpenVINO Model Server's and vLLM's parsers."""

from collections.abc import Mapping
from typing import Literal

from shared.protocol.formats import REASONING_FORMATS, TOOL_FORMATS, ReasoningFormatName, ToolFormatName

AUTO = "auto"
"""The format that the chat template shows."""
NONE = "none"
"""No format, or an unknown one."""

ParserKind = Literal["tool_parser", "reasoning_parser"]

_TOOL_ALIASES: Mapping[str, ToolFormatName] = {
    "devstral": "mistral_args",
    "gptoss": "harmony",
    "granite4": "hermes",
    "hermes3": "hermes",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "llama_pythonic",
    "mimo": "qwen3_coder",
    "openai": "harmony",
    "phi4_mini_json": "phi4",
    "pythonic": "llama_pythonic",
    "qwen3_xml": "qwen3_coder",
    "qwen3coder": "qwen3_coder",
    "step3p5": "qwen3_coder",
}
_REASONING_ALIASES: Mapping[str, ReasoningFormatName] = {
    "gptoss": "harmony",
    "openai_gptoss": "harmony",
    **dict.fromkeys(
        (
            "deepseek_r1",
            "deepseek_v3",
            "ernie45",
            "glm45",
            "glm47",
            "holo2",
            "hunyuan_a13b",
            "kimi_k2",
            "lfm2",
            "mimo",
            "minicpm5",
            "minimax_m2",
            "nemotron_v3",
            "olmo3",
            "qwen3",
            "step3",
            "step3p5",
        ),
        "think",
    ),
}

PARSERS: Mapping[ParserKind, Mapping[str, str]] = {
    "tool_parser": {**{name: name for name in (AUTO, NONE, *TOOL_FORMATS)}, **_TOOL_ALIASES},
    "reasoning_parser": {**{name: name for name in (AUTO, NONE, *REASONING_FORMATS)}, **_REASONING_ALIASES},
}
"""What a name means: :data:`AUTO`, :data:`NONE`, or a format."""
