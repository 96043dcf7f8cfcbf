"""Makes the tiny models in tests/models: random weights, and one vocabulary of each kind that models come with.

The tests load what is committed; only a change to the models needs this script. Its requirements are listed in
tests/models/README.md; the project's own environment does not have them::

    python tools/make_tiny_models.py [FOLDER]
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openvino
import torch
from openvino_tokenizers import convert_tokenizer
from optimum.exporters.openvino import main_export
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

SEED = 16
CONTEXT = 2048
SPREAD = 0.5
"""Standard deviation of the weights: wide enough that the most likely token changes from step to step."""
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
KEPT = {
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
}
TEXT = """
The quick brown fox jumps over the lazy dog. A worker takes a job from the queue and streams the answer back.
Models write words, numbers and calls: {"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}.
{"name": "Ada", "age": 36, "tags": ["one", "two"], "active": true, "email": null, "score": 12.5}
To be, or not to be, that is the question. All work and no play makes a dull day. It was the best of times.
def answer(question: str) -> str: return f"{question}? Yes!" # what else could there be?
In the beginning there was a word, and the word was with them; then there were others, and they were many.
""".strip().splitlines()

CHATML = """{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
INSTRUCTION = """{{ bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}<<SYS>>
{{ message.content }}
<</SYS>>
{% elif message.role == 'user' %}[INST] {{ message.content }} [/INST]
{%- else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"""
BARS = """{% for message in messages %}<|{{ message.role }}|>
{{ message.content }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
TURNS = """{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "


def byte_level_bpe(specials: list[str]) -> Tokenizer:
    """GPT-2's way: every byte has a letter, and texts are made of these."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(alphabet), show_progress=False)
    )
    tokenizer.add_special_tokens(specials)
    return tokenizer


def byte_fallback_bpe(specials: list[str], *, prepends_space: bool) -> Tokenizer:
    """SentencePiece's BPE: "▁" for a space, "<0xNN>" for bytes of characters that have no piece."""
    spaced = normalizers.Replace(" ", "▁")
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaced]) if prepends_space else spaced
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=220, show_progress=False))
    learned = sorted(trained.get_vocab(), key=trained.get_vocab().__getitem__)
    merges = [tuple(merge) for merge in state_of(trained)["merges"]]
    pieces = [*specials, *BYTES, *learned]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prepends_space else steps)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def unigram(specials: list[str], *, byte_fallback: bool) -> Tokenizer:
    """SentencePiece's Unigram, as T5 and XLNet have it; with ``byte_fallback``, as newer models do."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        TEXT,
        trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False),
    )
    scores = dict(state_of(trained)["vocab"])
    pieces = [(piece, 0.0) for piece in [*specials, *(BYTES if byte_fallback else [])]]
    pieces += [(piece, score) for piece, score in scores.items() if piece not in specials]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=specials.index("<unk>"), byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    metaspace = decoders.Metaspace()
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps) if byte_fallback else metaspace
    tokenizer.add_special_tokens(specials)
    return tokenizer


def wordpiece(specials: list[str]) -> Tokenizer:
    """BERT's way: "##" marks a piece that goes on with a word, everything else begins one."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=260, special_tokens=specials, show_progress=False)
    )
    return tokenizer


def state_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer's own model, as its JSON file describes it."""
    state: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return state


SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
    "initializer_range": SPREAD,
}
GPT2_SIZES: Mapping[str, Any] = {
    "n_embd": 32,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": CONTEXT,
    "initializer_range": SPREAD,
}


@dataclass(kw_only=True)
class TinyModel:
    """One model: its architecture (a class of configurations), its tokenizer and its chat template."""

    name: str
    config: Any
    sizes: Mapping[str, Any] = field(default_factory=lambda: SIZES)
    tokenizer: Tokenizer
    template: str
    bos: str | None = None
    eos: str
    unk: str | None = None
    others: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    """Tokens that end an output besides ``eos``."""

    def export(self, parent: Path) -> None:
        """Write the model into its folder in ``parent``, as OpenVINO IR."""
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer,
            bos_token=self.bos,
            eos_token=self.eos,
            pad_token=self.eos,
            unk_token=self.unk,
            additional_special_tokens=list(self.others),
            clean_up_tokenization_spaces=False,
            model_max_length=CONTEXT,
        )
        tokenizer.chat_template = self.template
        ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
        torch.manual_seed(SEED)
        config = self.config(vocab_size=len(tokenizer), **ids, **self.sizes)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        if self.ends:
            model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids([self.eos, *self.ends])
        with tempfile.TemporaryDirectory() as scratch:
            source, result = Path(scratch) / "source", Path(scratch) / "result"
            model.save_pretrained(source)
            tokenizer.save_pretrained(source)
            main_export(str(source), str(result), task="text-generation-with-past", device="cpu")
            converted = convert_tokenizer(tokenizer, with_detokenizer=True)
            for part, name in zip(converted, ("tokenizer", "detokenizer"), strict=True):
                openvino.save_model(part, result / f"openvino_{name}.xml")
            folder = parent / self.name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for file in result.iterdir():
                if file.name in KEPT:
                    shutil.copyfile(file, folder / file.name)


def tiny_models() -> list[TinyModel]:
    """Every model, with its tokenizer trained."""
    chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    llama = ["<unk>", "<s>", "</s>"]
    phi = [*llama, "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    gemma = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    t5 = ["<pad>", "</s>", "<unk>"]
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [
        TinyModel(
            name="qwen2-byte-level-bpe",
            config=Qwen2Config,
            tokenizer=byte_level_bpe(chatml),
            template=CHATML,
            eos="<|im_end|>",
            others=tuple(chatml[:2]),
        ),
        TinyModel(
            name="llama-byte-fallback-bpe",
            config=LlamaConfig,
            tokenizer=byte_fallback_bpe(llama, prepends_space=True),
            template=INSTRUCTION,
            bos="<s>",
            eos="</s>",
            unk="<unk>",
        ),
        TinyModel(
            name="phi3-byte-fallback-bpe",
            config=Phi3Config,
            tokenizer=byte_fallback_bpe(phi, prepends_space=True),
            template=BARS,
            bos="<s>",
            eos="<|end|>",
            unk="<unk>",
            others=tuple(phi[2:6]),
        ),
        TinyModel(
            name="gemma2-byte-fallback-bpe",
            config=Gemma2Config,
            sizes={**SIZES, "head_dim": 16, "query_pre_attn_scalar": 16},
            tokenizer=byte_fallback_bpe(gemma, prepends_space=False),
            template=TURNS,
            bos="<bos>",
            eos="<eos>",
            unk="<unk>",
            others=tuple(gemma[4:]),
            ends=("<end_of_turn>",),
        ),
        TinyModel(
            name="llama-byte-fallback-unigram",
            config=LlamaConfig,
            tokenizer=unigram(llama, byte_fallback=True),
            template=PLAIN,
            bos="<s>",
            eos="</s>",
            unk="<unk>",
        ),
        TinyModel(
            name="gpt2-unigram",
            config=GPT2Config,
            sizes=GPT2_SIZES,
            tokenizer=unigram(t5, byte_fallback=False),
            template=PLAIN,
            eos="</s>",
            unk="<unk>",
        ),
        TinyModel(
            name="gpt2-wordpiece",
            config=GPT2Config,
            sizes=GPT2_SIZES,
            tokenizer=wordpiece(bert),
            template=PLAIN,
            bos="[CLS]",
            eos="[SEP]",
            unk="[UNK]",
        ),
    ]


if __name__ == "__main__":
    for tiny_model in tiny_models():
        tiny_model.export(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests" / "models")
