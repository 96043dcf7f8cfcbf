# ruff: noqa: RUF001
"""How texts are split into words before the merges of a byte-level BPE vocabulary: by ``tokenizer.ggml.pre`` of a file.

The names and what they mean are those of llama.cpp. The expressions are Oniguruma's, one after the other: each splits
the parts that the one before has left. Left out are those whose rules are no expressions: afmoe, kimi-k2, superbpe, and
vocabularies without bytes.
"""

from typing import NamedTuple

_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+"
_DIGIT = r"\p{N}"
_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_END}"


def _words(
    digits: str,
    *,
    short: str = f"{_SHORT}|",
    letters: str = r"\p{L}",
    word: str = "",
    signs: str = r"[\r\n]*",
    lines: str = _LINES,
    end: str = _END,
) -> str:
    """Return the expression of cl100k and its descendants. ``digits`` are those of one part."""
    word = word or f"[{letters}]+"
    return rf"{short}[^\r\n\p{{L}}\p{{N}}]?{word}|{digits}| ?[^\s{letters}\p{{N}}]+{signs}|{lines}|{end}"


def _cased(digits: str, short: str) -> str:
    """Return the expression of o200k and its descendants, which splits before an uppercase letter."""
    first, upper, lower = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = f"{first}{upper}*{lower}+{short}|{first}{upper}+{lower}*{short}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}|{_END}"


_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_PUNCTUATED = rf"{_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_DEEPSEEK_3 = (r"\p{N}{1,3}", _CJK, rf"{_PUNCTUATED}[\r\n]*|{_LINES}|{_END}")
_HAN_AND_MORE = "[一-龥ࠀ-一가-퟿]+"
_SENTENCE = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CASED = (
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄ"
    "ῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]"
)

_LLAMA_3 = (_words(r"\p{N}{1,3}"),)
_QWEN_2 = (_words(_DIGIT),)
_FEW_SPACES = "|".join(rf"\s{{{2**power}}}(?!\S)" for power in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"
_GPT_4O = (_cased(r"\p{N}{1,3}", f"{_SHORT}?"),)


class PreTokenizer(NamedTuple):
    """``expressions`` split a text. ``whole_words``: a word that is a token is not split. ``bos``: prompts begin with
    BOS if the file does not say."""

    expressions: tuple[str, ...]
    whole_words: bool
    bos: bool


_KINDS = {
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": (_LLAMA_3, "whole bos"),
    "glm4 glm5": (_LLAMA_3, "whole"),
    "dbrx smaug-bpe chatglm-bpe": (_LLAMA_3, ""),
    "minicpm5": ((r"\p{N}{1,3}", _words(r"\p{N}+")), "whole"),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (_QWEN_2, ""),
    "qwen35": ((_words(_DIGIT, letters=r"\p{L}\p{M}"),), ""),
    "ufakzeka": ((_words(_DIGIT, short=""),), ""),
    "laguna": ((r"[^\n]+|[\n]+", *_QWEN_2), ""),
    "seed-coder": ((_words(_DIGIT).replace(r"]+[\r\n]*", r"\r\n]+"),), ""),
    "bailingmoe bailingmoe2 llada-moe": (
        (_words(_DIGIT, short="'(?i:[sdmt]|ll|ve|re)|", lines=r"\s*[\r\n]"),), ""
    ),
    "exaone-moe": (
        (_words(_DIGIT, word=r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", signs=r"[\r\n/]?", lines=r"\s*[\r\n]"),), ""
    ),
    "jais-2": ((_words(r"\p{N}{1,3}", end=_FEW_SPACES),), ""),
    "tekken": ((_cased(_DIGIT, ""),), "whole bos"),
    "gpt-4o llama4 kanana2 talkie minimax-m2": (_GPT_4O, ""),
    "granite-embed-multi-97m": (_GPT_4O, "whole"),
    "tiny_aya cohere2moe": ((r"\d{1,3}(?=(?:\d{3})*\b)", *_GPT_4O), ""),
    "youtu": ((f"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{_CJK}", _cased(_DIGIT, f"{_SHORT}?")), "whole"),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": (_DEEPSEEK_3, ""),
    "spark2_5": ((*_DEEPSEEK_3[:2], rf"{_PUNCTUATED}|[\r\n]|{_END}", _DIGIT), ""),
    "deepseek-llm": (
        (r"[\r\n]", rf"\s?{_CASED}+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _HAN_AND_MORE, r"\p{N}+"), ""
    ),
    "deepseek-coder": ((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_MORE, _DIGIT), ""),
    "falcon": ((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"), ""),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": ((_DIGIT, _GPT2), ""),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais trillion "
    "granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe": ((_GPT2,), ""),
    "poro-chat bloom gpt3-finnish": ((_SENTENCE,), ""),
    "viking": ((_SENTENCE, _DIGIT), ""),
    "chameleon": (
        ("<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", _DIGIT, r"[\p{P}!-/:-@\[-`{-~]", _GPT2), "bos"
    ),
    "default": ((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), ""),
}  # fmt: skip

PRE_TOKENIZERS = {
    name: PreTokenizer(expressions, "whole" in flags, "bos" in flags)
    for names, (expressions, flags) in _KINDS.items()
    for name in names.split()
}
"""The pre-tokenizers by name."""
