"""The model families whose output is parsed: rows of tables, and modules for those with a language of their own.

Sources: the families' chat templates and the tool calling sections of their model cards.
"""

from shared.parsers.families import elements, gemma, harmony, json_calls, minimax, named_calls, onyx, pythonic
from shared.parsers.format import ReasoningFormat

TOOLS = (
    *json_calls.TOOLS,
    *named_calls.TOOLS,
    *elements.TOOLS,
    *pythonic.TOOLS,
    *gemma.TOOLS,
    *minimax.TOOLS,
    *harmony.TOOLS,
    *onyx.TOOLS,
)


def _reasoning(
    name: str, begin: str, end: str, *aliases: str, wrappers: tuple[tuple[str, str], ...] = ()
) -> ReasoningFormat:
    """A format whose markers may be special tokens."""
    tokens = tuple(token for token in (begin.strip(), end, *(token for pair in wrappers for token in pair)) if token)
    return ReasoningFormat(name=name, aliases=aliases, begin=begin, end=end, special_tokens=tokens, wrappers=wrappers)


REASONING = (
    _reasoning(
        "think",
        "<think>",
        "</think>",
        *("deepseek_r1", "deepseek_v3", "deepseek_v4", "ernie45", "glm45", "glm47", "holo2", "kimi_k2"),
        *("lfm2", "mimo", "minicpm5", "minimax_m2", "nemotron_v3", "olmo3", "qwen3", "step3", "step3p5"),
        wrappers=(("<response>", "</response>"),),
    ),
    _reasoning("hunyuan_a13b", "<think>", "</think>", wrappers=(("<answer>", "</answer>"),)),
    _reasoning("mistral", "[THINK]", "[/THINK]"),
    _reasoning("seed_oss", "<seed:think>", "</seed:think>"),
    _reasoning("minimax_m3", "<mm:think>", "</mm:think>", wrappers=(("", "</mm:think>"),)),
    ReasoningFormat(
        name="kimi_k3",
        begin="<|open|>think<|sep|>",
        end="<|close|>think<|sep|>",
        special_tokens=elements.KIMI_TOKENS,
        wrappers=tuple(
            ("", text) for text in ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>")
        ),
        anywhere=True,
    ),
    _reasoning("hunyuan_v3", "<think:opensource>", "</think:opensource>"),
    _reasoning(
        "cohere",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "cohere_command3",
        wrappers=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
    ),
    ReasoningFormat(
        name="apriel",
        begin="Here are my reasoning steps:",
        end="[BEGIN FINAL RESPONSE]",
        wrappers=(("", "[END FINAL RESPONSE]"),),
    ),
    ReasoningFormat(name="granite", begin="Here is my thought process:", end="Here is my response:"),
    *gemma.REASONING,
    *harmony.REASONING,
    *onyx.REASONING,
)
