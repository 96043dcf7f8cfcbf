"""Opens the tokenizer of a model for prompts.

That of a GGUF file is made from its header. That of a folder is the one in ``tokenizer.json``, by which the model was
trained; without it, the one that was converted for OpenVINO, which differs for some vocabularies.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared.parsers.formats import MARKERS
from worker.engine.text import Utf8Decoder
from worker.model.generation_config import end_tokens
from worker.model.gguf_tokenizer import encoder, load_tokenizer, read_tokens
from worker.prompt.tokenize import ModelTokenizer

if TYPE_CHECKING:
    import openvino_genai
    import tokenizers

_log = logging.getLogger(__name__)

_ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
"""Tokenisation is sequential. More threads only slow it down, and take CPU time from the engine."""

_ROLE_BEGINS = ("<|", "<｜")  # noqa: RUF001


def open_tokenizer(path: Path, template: str) -> ModelTokenizer:
    """Open the tokenizer of the GGUF file or IR folder at ``path``, whose chat template is ``template``.

    Raises :class:`RuntimeError` if OpenVINO can't open it.
    """
    return _of_folder(path) if path.is_dir() else _of_gguf(path, template)


def _of_gguf(path: Path, template: str) -> ModelTokenizer:
    tokens = read_tokens(path)

    def decode(ids: tuple[int, ...]) -> str:
        decoder = Utf8Decoder(replace=True)
        text = decoder.decode(b"".join([tokens.pieces[token] for token in ids])) + decoder.finish()
        return text.removeprefix(" ") if tokens.adds_space and ids and ids[0] not in tokens.special else text

    # Some files have tokens for roles that are not control tokens.
    protected = {
        token: text
        for token, text in tokens.added.items()
        if token in tokens.special
        or (text not in MARKERS and len(text) > 1 and (text in template or text.startswith(_ROLE_BEGINS)))
    }
    return ModelTokenizer(
        encode=encoder(load_tokenizer(path, tokens)),
        decode=decode,
        pieces=tokens.pieces,
        special={token: tokens.text(token) for token in tokens.special},
        protected=protected,
        begin=(tokens.bos,) if tokens.adds_bos and tokens.bos is not None else (),
        ends=tokens.ends,
        bos=tokens.text(tokens.bos),
        eos=tokens.text(tokens.eos),
    )


def _of_folder(path: Path) -> ModelTokenizer:
    import openvino_genai

    from worker.openvino.vocabulary import read_pieces

    tokenizer = openvino_genai.Tokenizer(str(path), **_ONE_THREAD)
    pieces = read_pieces(path)
    special = _special_texts(tokenizer, len(pieces))

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return _encode(tokenizer, texts, add_special_tokens=False)

    def decode(tokens: tuple[int, ...]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False))

    own = _own_tokenizer(path, special)
    return ModelTokenizer(
        encode=encoder(own) if own else encode,
        decode=(lambda tokens: own.decode(list(tokens), skip_special_tokens=False)) if own else decode,
        pieces=pieces,
        special=special,
        protected=special,
        begin=_begin(tokenizer),
        ends=end_tokens(path) | {tokenizer.get_eos_token_id()} - {-1},
        bos=tokenizer.get_bos_token(),
        eos=tokenizer.get_eos_token(),
        template=tokenizer.get_original_chat_template() or tokenizer.chat_template,
    )


def _own_tokenizer(path: Path, special: dict[int, str]) -> "tokenizers.Tokenizer | None":
    """Return the tokenizer of ``tokenizer.json`` in the folder at ``path``, if it has one for the same vocabulary."""
    file = path / "tokenizer.json"
    if not file.is_file():
        return None
    import tokenizers

    try:
        own = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        _log.warning("%s can't be read, openvino_tokenizer.xml is used: %s", file, error)
        return None
    other = [text for token, text in special.items() if own.token_to_id(text) != token]
    if other:
        _log.warning("%s is not that of openvino_tokenizer.xml, which is used: %s differ", file, ", ".join(other[:5]))
        return None
    own.no_padding()
    own.no_truncation()
    return own


def _special_texts(tokenizer: "openvino_genai.Tokenizer", vocabulary_size: int) -> dict[int, str]:
    """Return the texts of the tokens that decoding can skip, by id. GenAI does not list special tokens."""
    every = [[token] for token in range(vocabulary_size)]
    kept = tokenizer.decode(every, skip_special_tokens=False)
    skipped = tokenizer.decode(every, skip_special_tokens=True)
    return {token: text for token, (text, rest) in enumerate(zip(kept, skipped, strict=True)) if text != rest}


def _encode(
    tokenizer: "openvino_genai.Tokenizer", texts: Sequence[str], *, add_special_tokens: bool
) -> list[list[int]]:
    encoded = tokenizer.encode(list(texts), add_special_tokens=add_special_tokens)
    # The rows are padded to equal length; the mask marks the padding.
    rows, masks = encoded.input_ids.data, encoded.attention_mask.data.astype(bool)
    return [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]


def _begin(tokenizer: "openvino_genai.Tokenizer") -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a plain text (a BOS token), if any."""
    (bare,) = _encode(tokenizer, ["a"], add_special_tokens=False)
    (full,) = _encode(tokenizer, ["a"], add_special_tokens=True)
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start])
    return ()
