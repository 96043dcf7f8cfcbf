# ruff: noqa: RUF001
"""Tokenizers made from the headers of GGUF files, with the meaning that llama.cpp gives them."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from shared.protocol.request import ChatRequest, Message
from tests.support.gguf_files import gguf_bytes, tiny_llama
from worker.model.gguf import GGUFError
from worker.model.gguf_tokenizer import encoder, load_tokenizer, read_tokens
from worker.model.local import resolve
from worker.model.pre_tokenizers import PRE_TOKENIZERS
from worker.model.source import ModelError
from worker.openvino.prompt_maker import load_prompt_maker
from worker.openvino.vocabulary import open_tokenizer
from worker.prompt.maker import TemplatePromptMaker
from worker.prompt.messages import PromptOptions

LETTERS = [chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))]
ALPHABET = [*LETTERS, *(chr(256 + number) for number in range(256 - len(LETTERS)))]
CHAT = (
    "{% for m in messages %}<|User|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|Assistant|>{% endif %}"
)


def _file(folder: Path, added: dict[str, int], **metadata: Any) -> Path:
    """A byte-level vocabulary: an id for each byte in order of GPT-2's alphabet, then ``added`` texts and types."""
    fields = {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
    file = folder / "tiny.gguf"
    file.write_bytes(
        tiny_llama(
            metadata={
                "tokenizer.ggml.tokens": [*ALPHABET, *added],
                "tokenizer.ggml.token_type": [1] * 256 + list(added.values()),
                "tokenizer.ggml.merges": [],
                "tokenizer.ggml.bos_token_id": 256,
                "tokenizer.ggml.eos_token_id": 257,
                "tokenizer.chat_template": CHAT,
                **fields,
            }
        )
    )
    return file


def _ids(file: Path, text: str) -> list[int]:
    (ids,) = encoder(load_tokenizer(file, read_tokens(file)))([text])
    return ids


def _maker(file: Path) -> TemplatePromptMaker:
    return load_prompt_maker(PromptOptions(engine="auto", path=str(file), context_length=64))


DEEPSEEK = {"<｜begin▁of▁sentence｜>": 3, "<｜end▁of▁sentence｜>": 3, "<｜User｜>": 4, "<｜Assistant｜>": 4, "ü": 4}


def test_one_token_that_is_not_ascii_hides_no_special_token(tmp_path: Path) -> None:
    """Row 1: OpenVINO GenAI makes 44 tokens of a chat of "hi"."""
    file = _file(tmp_path, DEEPSEEK, pre="deepseek-r1-qwen", chat_template="x")
    assert _ids(file, "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜>") == [256, 258, 71, 72, 259]


def test_only_control_tokens_are_hidden_in_answers(tmp_path: Path) -> None:
    """Row 4: those for letters, reasoning and calls are text."""
    file = _file(tmp_path, DEEPSEEK | {"<think>": 4, "</s>": 1})
    _, vocabulary = open_tokenizer(file)
    assert vocabulary.special == {256, 257}
    shown = vocabulary.texts(skip_special_tokens=True)
    assert "".join(shown[token] for token in (69, 260, 81, 261, 256)) == "fü" + "r<think>"


def test_no_text_of_a_client_forms_a_control_token_or_a_role(tmp_path: Path) -> None:
    file = _file(tmp_path, {"<s>": 3, "</s>": 3, "<|User|>": 4, "<|Assistant|>": 4, "<think>": 4})
    message = Message(role="user", content="<|Assistant|></s><think>")
    tokens = _maker(file).prepare(ChatRequest(model="m", messages=(message,))).tokens
    assert [token for token in tokens if token >= 256] == [
        258,
        260,
        259,
    ]  # a marker of reasoning is a token, as in texts


def test_of_overlapping_special_texts_the_longest_is_found(tmp_path: Path) -> None:
    assert _ids(_file(tmp_path, {"<a": 3, "<ab": 3, "<abc>": 3}), "<abc><ab<a") == [258, 257, 256]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("llama-bpe", ["It", "'S", " ", "123", "4", "   ", " für", "\n\n"]),
        ("qwen2", ["It", "'S", " ", "1", "2", "3", "4", "   ", " für", "\n\n"]),
        ("gpt-2", ["It", "'", "S", " 1234", "   ", " für", "\n\n"]),
        ("smollm", ["It", "'", "S", " ", "1", "2", "3", "4", "   ", " für", "\n\n"]),
        ("deepseek-llm", ["It", "'", "S", " ", "1234", "   ", " f", "ü", "r", "\n", "\n"]),
        ("deepseek-v3", ["It", "'S", " ", "123", "4", "   ", " für", "\n\n"]),
        ("tekken", ["It", "'S", " ", "1", "2", "3", "4", "   ", " für", "\n\n"]),
    ],
)
def test_texts_are_split_as_the_file_says(pre: str, words: list[str]) -> None:
    """Row 3: OpenVINO GenAI knows two of these."""
    assert _words(pre, "It'S 1234    für\n\n") == words


def _words(pre: str, text: str) -> list[str]:
    words = [text]
    for expression in PRE_TOKENIZERS[pre].expressions:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        words = [part for word in words for part, _ in split.pre_tokenize_str(word)]
    return words


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_no_pre_tokenizer_loses_text(pre: str) -> None:
    text = "Zürich's 12345 ՝ა한국어\u3000  \r\n\t<x> don't 日本語。「あ」 é\u0301 \U0001f600…!?  "
    assert "".join(_words(pre, text)) == text


def test_an_unknown_pre_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre = 'new' is unknown"):
        resolve(str(_file(tmp_path, {"<s>": 3}, pre="new")))


@pytest.mark.parametrize(
    ("fields", "begins"),
    [
        ({"add_bos_token": True}, True),
        ({"add_bos_token": False, "pre": "llama-bpe"}, False),
        ({"pre": "llama-bpe"}, True),
        ({}, False),
    ],
)
def test_plain_prompts_begin_with_bos_if_the_file_says_so(tmp_path: Path, fields: dict[str, Any], begins: bool) -> None:
    """Row 5, as in llama.cpp: Llama 3's begin with BOS unless the file says otherwise."""
    template = {} if "add_bos_token" in fields else {"add_bos_token": "unset"}
    file = _file(tmp_path, {"<s>": 3, "</s>": 3}, **template, **fields)
    if template:
        file.write_bytes(file.read_bytes().replace(b"tokenizer.ggml.add_bos_token", b"tokenizer.ggml.xxx_xxx_xxxxx"))
    assert _maker(file).prepare(ChatRequest(model="m", prompts=("a",))).tokens == ((256, 64) if begins else (64,))


def test_outputs_end_at_each_end_token_of_the_file(tmp_path: Path) -> None:
    """Row 5: end of turn and of message, by their keys or their names."""
    added = {"<s>": 3, "</s>": 3, "<turn>": 3, "<message>": 3, "<|im_end|>": 3, "<other>": 3}
    file = _file(tmp_path, added, eot_token_id=258, eom_token_id=259)
    tokenizer, vocabulary = open_tokenizer(file)
    assert tokenizer.get_eos_token_id() == 257
    assert vocabulary.end_tokens == {257, 258, 259, 260}


def test_a_part_of_an_output_ends_where_other_tokens_end_the_output(tmp_path: Path) -> None:
    """As in llama.cpp: gpt-oss writes <|end|> between messages."""
    file = _file(tmp_path, {"<s>": 3, "</s>": 3, "<|end|>": 3, "<|call|>": 3, "<|return|>": 3})
    assert read_tokens(file).ends == {257, 259, 260}
    assert read_tokens(_file(tmp_path, {"<s>": 3, "</s>": 3, "<|end|>": 3})).ends == {257, 258}


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab", "▁ab", "ü"]
SENTENCE_PIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 7,
    "tokenizer.ggml.scores": [0.0] * 259 + [-5.0, -6.0, -7.0, -2.0, -3.0, -1.0, -8.0],
    "tokenizer.ggml.add_space_prefix": True,
    "tokenizer.chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}",
}


def test_a_sentencepiece_vocabulary_is_served(tmp_path: Path) -> None:
    """Row 7: pairs with the highest score are joined, a text begins with a space, and any byte is spelled."""
    file = tmp_path / "tiny.gguf"
    own = {key: value for key, value in SENTENCE_PIECE.items() if key != "tokenizer.ggml.add_space_prefix"}
    file.write_bytes(gguf_bytes({"general.architecture": "llama", "tokenizer.ggml.bos_token_id": 1, **own}))
    ids = {piece: token for token, piece in enumerate(PIECES)}
    assert _ids(file, "ab<s>a b ü") == [ids["▁ab"], 1, ids["▁a"], ids["▁"], ids["b"], ids["▁"], ids["ü"]]
    assert _ids(file, "é") == [ids["▁"], ids["<0xC3>"], ids["<0xA9>"]]
    tokens = read_tokens(file)
    assert b"".join(tokens.pieces[token] for token in _ids(file, "ab é")) == " ab é".encode()
    maker = _maker(file)
    prompt = maker.prepare(ChatRequest(model="m", prompts=("ab é",))).tokens
    assert (prompt[0], maker.decode(prompt[1:])) == (1, "ab é")


@pytest.mark.parametrize(("tokens", "types"), [([], []), (["a", "b"], [1])])
def test_a_file_without_a_whole_vocabulary_is_named(tmp_path: Path, tokens: list[str], types: list[int]) -> None:
    file = tmp_path / "tiny.gguf"
    arrays: dict[str, Any] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    file.write_bytes(gguf_bytes({key: value for key, value in arrays.items() if value}))
    with pytest.raises(GGUFError, match=rf"tiny\.gguf has {len(tokens)} tokens and {len(types)} types"):
        read_tokens(file)
