"""Compares the token ids of GGUF files with llama.cpp's, in an environment of its own.

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python && tar xzf llama_cpp_python-*.tar.gz
    pip install tokenizers msgspec cffi llama-cpp-py-sync xllamacpp tiktoken
    python -m tools.compare_tokenizers llama_cpp_python-*/vendor/llama.cpp/models/ggml-vocab-*.gguf

Vocabularies of real models come from the first package, llama.cpp itself from the last, its header from the one before.
For each kind of pre-tokenizer that no file has, one is made: the vocabulary of GPT-2 with another name. Prints for each
file how many of the texts have the same ids, and the first text that has others. llama.cpp itself differs from Hugging
Face where an expression without a category of characters meets white space that is not ASCII, as in deepseek-llm, and
where one distinguishes upper and lower case beyond ASCII; there, tiktoken takes its place if it can.
"""

import argparse
import random
import struct
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from worker.model.gguf import read_header
from worker.model.gguf_tokenizer import GgufTokens, encoder, load_tokenizer, read_tokens
from worker.model.pre_tokenizers import PRE_TOKENIZERS

Encode = Callable[[Sequence[str]], list[list[int]]]

_SCRIPTS = {
    "latin": (0x61, 0x7A), "german": (0xC0, 0x17F), "greek": (0x391, 0x3C9), "cyrillic": (0x410, 0x44F),
    "armenian": (0x531, 0x586), "hebrew": (0x5D0, 0x5EA), "arabic": (0x620, 0x64A), "hindi": (0x904, 0x94D),
    "bengali": (0x985, 0x9CD), "tamil": (0xB85, 0xBCD), "thai": (0xE01, 0xE4E), "georgian": (0x10D0, 0x10FA),
    "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FA5), "hangul": (0xAC00, 0xD7A3), "emoji": (0x1F300, 0x1F64F),
    "signs": (0x2010, 0x27BF), "any": (0x21, 0x2FFFF),
}  # fmt: skip
_SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "    ", "\u00a0", "\u3000", " \t\n  "]
_PUNCTUATION = [*".,;:!?()[]{}<>\"'`~@#$%^&*-_=+/\\|", "...", "->", "==", "!=", "'s", "'LL", "n't", "“", "”", "—"]


def _word(chance: random.Random, script: str) -> str:
    first, last = _SCRIPTS[script]
    letters: list[str] = []
    while len(letters) < chance.randint(1, 9):
        letter = chr(chance.randint(first, last))
        if unicodedata.category(letter) not in ("Cn", "Cs", "Co"):
            letters.append(letter)
    word = "".join(letters)
    return chance.choice([word, word, word.title(), word.upper()])


def _texts(count: int, sources: Sequence[str], specials: Sequence[str]) -> Iterator[str]:
    """Yield prose and code of ``sources``, digits, words of many scripts, white space and special texts."""
    chance = random.Random(7)
    for number in range(count):
        match number % 5:
            case 0 | 1:
                source = chance.choice(sources)
                start = chance.randrange(max(1, len(source) - 300))
                yield source[start : start + chance.randint(1, 300)]
            case 2:
                script = chance.choice(list(_SCRIPTS))
                parts = [_word(chance, script) + chance.choice(_SPACES[:4]) for _ in range(chance.randint(1, 20))]
                yield "".join(parts)
            case 3:
                kinds = ("digits", "space", "mark", "word")
                parts = []
                for kind in chance.choices(kinds, k=chance.randint(1, 25)):
                    parts.append(
                        {
                            "digits": str(chance.randrange(10 ** chance.randint(1, 12))),
                            "space": chance.choice(_SPACES),
                            "mark": chance.choice(_PUNCTUATION) * chance.randint(1, 3),
                            "word": _word(chance, chance.choice(list(_SCRIPTS))),
                        }[kind]
                    )
                yield "".join(parts)
            case _:
                parts = [_word(chance, "latin") + " " for _ in range(chance.randint(0, 6))]
                for _ in range(chance.randint(1, 4)):
                    parts.insert(chance.randint(0, len(parts)), chance.choice(specials))
                yield "".join(parts)


def _renamed(file: Path, folder: Path, name: str) -> Path:
    """Return a copy of a vocabulary with another ``tokenizer.ggml.pre``."""
    key = b"tokenizer.ggml.pre"
    data = file.read_bytes()
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
    length = struct.unpack_from("<Q", data, at)[0]
    copy = folder / f"{name}.gguf"
    copy.write_bytes(data[:at] + struct.pack("<Q", len(name)) + name.encode() + data[at + 8 + length :])
    return copy


def _llama_cpp(file: Path) -> Encode:
    """Return llama.cpp's encoding."""
    import xllamacpp  # type: ignore[import-not-found]
    from llama_cpp_py_sync._cffi_bindings import get_ffi  # type: ignore[import-not-found]

    ffi = get_ffi()
    lib = ffi.dlopen(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    silent = ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda level, text, data: None)
    lib.llama_log_set(silent, ffi.NULL)
    params: Any = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(file).encode(), params)
    if model == ffi.NULL:
        raise ValueError(f"llama.cpp does not load {file}")
    vocabulary, room = lib.llama_model_get_vocab(model), 8192
    ids = ffi.new(f"int32_t[{room}]")

    def encode(texts: Sequence[str]) -> list[list[int]]:
        _ = silent, model  # kept alive
        found = []
        for text in texts:
            data = text.encode()
            count = lib.llama_tokenize(vocabulary, data, len(data), ids, room, False, True)
            found.append(list(ids[0:count]))
        return found

    return encode


def _tiktoken(tokens: GgufTokens, expression: str) -> Encode:
    """Return tiktoken's encoding with the vocabulary of GPT-2, in which the order of ids is that of merges."""
    import tiktoken

    ordinary = {piece: token for token, piece in enumerate(tokens.pieces) if token not in tokens.added}
    special = {text: token for token, text in tokens.added.items()}
    encoding = tiktoken.Encoding("made", pat_str=expression, mergeable_ranks=ordinary, special_tokens=special)
    return lambda texts: [encoding.encode(text, allowed_special="all") for text in texts]


def _report(file: Path, tokens: GgufTokens, texts: Sequence[str]) -> float:
    kind = PRE_TOKENIZERS[str(read_header(file).metadata.get("tokenizer.ggml.pre", "default"))]
    # llama.cpp takes letters outside of ASCII for both cases there.
    cased = r"\p{Lu}" in kind.expressions[0] and not kind.whole_words
    theirs = (_tiktoken(tokens, kind.expressions[0]) if cased else _llama_cpp(file))(texts)
    ours = encoder(load_tokenizer(file, tokens))(texts)
    wrong = [number for number in range(len(texts)) if ours[number] != theirs[number]]
    share = 1 - len(wrong) / len(texts)
    pre = read_header(file).metadata.get("tokenizer.ggml.pre", "-")
    print(f"{file.stem:32} {pre!s:24} {len(tokens.pieces):7} tokens  {share:8.3%} of {len(texts)} texts", flush=True)
    for number in wrong[:1]:
        print(f"    {texts[number]!r}\n    ours   {ours[number]}\n    theirs {theirs[number]}")
    return share


def main() -> int:
    """Return 1 if a file has less than 99.9 % of texts with equal ids."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="GGUF files; only their headers are read")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--only", action="append", default=[], help="pre-tokenizer to make; all by default")
    arguments = parser.parse_args()
    files = [
        file for file in arguments.files if read_header(file).metadata["tokenizer.ggml.model"] in ("gpt2", "llama")
    ]
    known = [str(read_header(file).metadata.get("tokenizer.ggml.pre")) for file in files]
    seen = {PRE_TOKENIZERS.get(name) for name in known}
    base = next((file for file in files if "gpt-2" in known[files.index(file)]), files[0])
    repository = Path(__file__).parent.parent
    sources = [file.read_text() for pattern in ("docs/*.md", "api/*/*.py", "*.md") for file in repository.glob(pattern)]
    shares = []
    with tempfile.TemporaryDirectory() as scratch:
        firsts = {kind: name for name, kind in reversed(PRE_TOKENIZERS.items()) if kind not in seen}
        made = arguments.only or list(firsts.values())
        for file in (*files, *(_renamed(base, Path(scratch), name) for name in made)):
            if str(read_header(file).metadata.get("tokenizer.ggml.pre", "default")) not in PRE_TOKENIZERS:
                print(f"{file.stem:32} is not served")
                continue
            tokens = read_tokens(file)
            texts = list(_texts(arguments.texts, sources, list(tokens.added.values())[:500] or ["<s>"]))
            shares.append(_report(file, tokens, texts))
    print(f"{len(shares)} files, the lowest share is {min(shares):.3%}")
    return int(min(shares) < 0.999)


if __name__ == "__main__":
    sys.exit(main())
