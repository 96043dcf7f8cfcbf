"""The model families whose output is parsed: rows of tables, and modules for those with a language of their own.

Sources: the families' chat templates and the tool calling sections of their model cards.
"""

from shared.parsers.families import deepseek, elements, harmony, json_calls, pythonic
from shared.parsers.format import ReasoningFormat

TOOLS = (*json_calls.TOOLS, *elements.TOOLS, *pythonic.TOOLS, *deepseek.TOOLS, *harmony.TOOLS)
REASONING = (
    ReasoningFormat(
        name="think",
        aliases=(
            *("deepseek_r1", "deepseek_v3", "ernie45", "glm45", "glm47", "holo2", "hunyuan_a13b", "kimi_k2", "lfm2"),
            *("mimo", "minicpm5", "minimax_m2", "nemotron_v3", "olmo3", "qwen3", "step3", "step3p5"),
        ),
        begin="<think>",
        end="</think>",
        special_tokens=("<think>", "</think>"),
    ),
    ReasoningFormat(name="mistral", begin="[THINK]", end="[/THINK]", special_tokens=("[THINK]", "[/THINK]")),
    ReasoningFormat(name="granite", begin="Here is my thought process:", end="Here is my response:"),
    *harmony.REASONING,
)
