"""The self-test of a tokenizer: what is refused, what is a warning, and that real models pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from worker.model.local import default_model
from worker.openvino.prompt_maker import load_prompt_maker
from worker.prompt.facts import TemplateFacts
from worker.prompt.maker import Chat
from worker.prompt.messages import PromptOptions
from worker.prompt.self_test import damaged_texts, wrong_chats
from worker.prompt.template import ChatTemplate
from worker.prompt.tokenize import ModelTokenizer

MODELS = sorted(path.parent for path in (Path(__file__).parents[3] / "models").glob("*/openvino_detokenizer.xml"))
SPECIAL = {256: "<|im_start|>", 257: "<|im_end|>"}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def _tokenizer(*, found: bool = True, lowers: bool = False, latin: bool = False, **fields: Any) -> ModelTokenizer:
    """A tokenizer of bytes. ``found``: it finds special tokens. ``latin``: it has no other bytes than ASCII."""

    def encode_one(text: str) -> list[int]:
        for token, special in SPECIAL.items() if found else ():
            before, mark, after = text.partition(special)
            if mark:
                return [*encode_one(before), token, *encode_one(after)]
        data = (text.lower() if lowers else text).encode()
        return [byte for byte in data if byte < 128 or not latin]

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [encode_one(text) for text in texts]

    return ModelTokenizer(
        encode=encode,
        decode=lambda ids: bytes(ids).decode(errors="replace"),
        pieces=(),
        special=SPECIAL,
        protected=SPECIAL,
        begin=(),
        bos="",
        eos="",
        **{"ends": frozenset({257}), **fields},
    )


def findings_in(model: Path, **fields: Any) -> tuple[str, ...] | None:
    options = PromptOptions(engine="auto", path=str(model), context_length=64, **fields)
    return load_prompt_maker(options).description.findings


CHAT = Chat(ChatTemplate(CHATML, bos_token="", eos_token=""), TemplateFacts())


def test_a_right_tokenizer_passes() -> None:
    assert [*damaged_texts(_tokenizer()), *wrong_chats(_tokenizer(), CHAT)] == []


def test_special_tokens_that_prompts_do_not_have_are_serious() -> None:
    serious = {finding.text for finding in wrong_chats(_tokenizer(found=False), CHAT) if finding.serious}
    assert serious == {
        f"the special token {text!r} of the chat template is not found in prompts" for text in SPECIAL.values()
    }
    (warning,) = damaged_texts(_tokenizer(found=False))
    assert (warning.serious, warning.text[:17]) == (False, "2 special tokens ")


def test_an_end_token_that_ends_no_output_is_serious() -> None:
    (finding,) = wrong_chats(_tokenizer(ends=frozenset({256})), CHAT)
    assert finding.serious
    assert finding.text.startswith(
        "'<|im_end|>' ends an answer in the chat template, but outputs end with '<|im_start|>'"
    )
    (finding,) = wrong_chats(_tokenizer(ends=frozenset()), CHAT)
    assert (finding.serious, finding.text[:17]) == (True, "no token ends an ")


def test_markers_may_precede_the_end_of_an_answer() -> None:
    source = CHATML.replace("<|im_start|>assistant\n", "{% if add_generation_prompt %}<|im_start|>{% endif %}")
    marked = Chat(
        ChatTemplate(source.replace("<|im_end|>", "<|im_end|>end<|im_start|>"), bos_token="", eos_token=""),
        TemplateFacts(),
    )
    assert [*wrong_chats(_tokenizer(ends=frozenset({256})), marked)] == []


@pytest.mark.parametrize(
    ("fault", "text"),
    [({"lowers": True}, "normalises texts in Latin, "), ({"latin": True}, "can't represent texts in Latin, Greek, ")],
)
def test_texts_that_become_others_are_one_warning(fault: dict[str, bool], text: str) -> None:
    (finding,) = damaged_texts(_tokenizer(**fault))
    assert text in finding.text
    assert not finding.serious


@pytest.mark.parametrize("model", [*MODELS, None], ids=lambda model: model.name if model else "default")
def test_every_model_of_the_tests_passes(model: Path | None) -> None:
    findings = findings_in(model or default_model())
    assert findings is not None
    assert len(findings) == (
        model is not None and model.name in ("gpt2-unigram", "gpt2-wordpiece", "llama-byte-fallback-unigram")
    )


def test_a_model_that_fails_is_served_where_that_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    source = next(model for model in MODELS if model.name == "gemma2-byte-fallback-bpe")
    for file in source.iterdir():
        if "_model" not in file.name and file.name != "generation_config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    with pytest.raises(RuntimeError, match=r"self-test failed: '<end_of_turn>' ends an answer .* --self-test warn"):
        findings_in(folder)
    (finding,) = findings_in(folder, self_test="warn") or ()
    assert finding.startswith("'<end_of_turn>' ends an answer")
    assert findings_in(folder, self_test="off") is None
