"""The text of random tokens is that of OpenVINO's own tokenizer, for every kind of vocabulary (tests/models)."""

import random
import re
import shutil
from pathlib import Path

import openvino_genai
import pytest

from worker.engine.text import TextStream
from worker.openvino.vocabulary import open_tokenizer

MODELS = sorted(path.parent for path in (Path(__file__).parents[1] / "models").glob("*/openvino_detokenizer.xml"))
DETOKENIZER = "openvino_detokenizer.xml"


def dropping(model: Path, folder: Path) -> Path:
    """A copy of a model whose detokenizer drops invalid UTF-8."""
    copy = folder / model.name
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns("*_model.*"))
    text = (copy / DETOKENIZER).read_text()
    changed = re.sub('replace_mode="true"', 'replace_mode="false"', text)
    assert changed != text
    (copy / DETOKENIZER).write_text(changed)
    return copy


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_random_tokens_have_the_tokenizers_own_text(model: Path, replaces: bool, tmp_path: Path) -> None:
    path = model if replaces else dropping(model, tmp_path)
    own = openvino_genai.Tokenizer(str(path))
    _, vocabulary = open_tokenizer(path)
    fragments = [token for token in range(len(vocabulary)) if vocabulary.is_fragment(token)]
    assert not fragments or vocabulary.replaces_invalid == replaces
    draw = random.Random(model.name)
    replaced = False
    for number in range(60):
        kinds = [fragments or range(len(vocabulary)), range(len(vocabulary))]
        tokens = [draw.choice(draw.choice(kinds)) for _ in range(draw.randint(1, 40))]
        skip = number % 2 == 0
        stream = TextStream(vocabulary, skip_special_tokens=skip)
        text = "".join(map(stream.push, tokens)) + stream.finish()
        assert text == own.decode(tokens, skip_special_tokens=skip), tokens
        replaced |= "\ufffd" in text
    assert replaced or not (fragments and replaces)
