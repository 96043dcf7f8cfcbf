"""The prompt maker of a real model, with OpenVINO GenAI's tokenizer, which loads without the model."""

import logging
from collections.abc import Sequence
from pathlib import Path

import openvino_genai

from shared.parsers.formats import AUTO
from worker.engine.vocabulary import read_pieces
from worker.grammar.spelling import missing_bytes, spells_everyday_text
from worker.model.chat_template import OwnTemplates, own_templates
from worker.model.export import tokenizer_path
from worker.prompt.maker import TemplatePromptMaker
from worker.prompt.specials import SpecialTexts
from worker.prompt.template import ChatTemplate

_log = logging.getLogger(__name__)

_ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
"""Tokenisation is sequential. More threads only slow it down, and take CPU time from the engine."""


def load_prompt_maker(
    path: str,
    *,
    context_length: int,
    max_prompt: int = 0,
    chat_template: str = "",
    parsers: tuple[str, str] = (AUTO, AUTO),
) -> TemplatePromptMaker:
    """Load the tokenizer of the GGUF file or IR folder at ``path``. ``chat_template``, if any, replaces its own.

    ``parsers`` are those of tool calls and of reasoning (see :func:`~worker.prompt.probe.probe`).
    ``context_length`` and ``max_prompt`` are as in :class:`~worker.prompt.messages.PromptOptions`.

    Raises :class:`RuntimeError` when the tokenizer can't be loaded, and
    :class:`worker.prompt.template.ChatTemplateError` when the model's chat template can't be compiled.
    """
    opened = tokenizer_path(Path(path))
    tokenizer = openvino_genai.Tokenizer(str(opened), **_ONE_THREAD)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return _encode(tokenizer, texts, add_special_tokens=False)

    pieces = read_pieces(opened, tokenizer)
    vocabulary_size = len(pieces)
    missing = missing_bytes(pieces)
    if not spells_everyday_text(missing):
        _log.warning(
            "the vocabulary of %s has no tokens for single bytes: requests for structured output or forced tool calls "
            "are refused",
            path,
        )
    special_texts = _special_texts(tokenizer, vocabulary_size)
    copied = tokenizer.get_original_chat_template() or tokenizer.chat_template
    own = OwnTemplates() if chat_template else own_templates(Path(path))
    if own.default and copied and own.default.strip() != copied.strip():
        _log.warning("the chat template is that of %s in %s, not the one in openvino_tokenizer.xml", own.file, path)
    bos, eos = tokenizer.get_bos_token(), tokenizer.get_eos_token()
    template, tool_template = (
        ChatTemplate(source, bos_token=bos, eos_token=eos) if source else None
        for source in (chat_template or own.default or copied, own.tool_use)
    )
    return TemplatePromptMaker(
        encode=encode,
        decode=lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False)),
        pieces=pieces,
        template=template,
        tool_template=tool_template,
        parsers=parsers,
        special_texts=SpecialTexts(special_texts.values()),
        bos_tokens=_bos_tokens(tokenizer),
        vocabulary_size=vocabulary_size,
        context_length=context_length,
        max_prompt=max_prompt,
        missing_bytes=missing,
        boundaries=(bos, eos),
        special_ids={text: token for token, text in special_texts.items()},
    )


def _special_texts(tokenizer: openvino_genai.Tokenizer, vocabulary_size: int) -> dict[int, str]:
    """Return the texts of the tokens that decoding can skip, by id. GenAI does not list special tokens."""
    every = [[token] for token in range(vocabulary_size)]
    kept = tokenizer.decode(every, skip_special_tokens=False)
    skipped = tokenizer.decode(every, skip_special_tokens=True)
    return {token: text for token, (text, rest) in enumerate(zip(kept, skipped, strict=True)) if text != rest}


def _encode(tokenizer: openvino_genai.Tokenizer, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
    encoded = tokenizer.encode(list(texts), add_special_tokens=add_special_tokens)
    # The rows are padded to equal length; the mask marks the padding.
    rows, masks = encoded.input_ids.data, encoded.attention_mask.data.astype(bool)
    return [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]


def _bos_tokens(tokenizer: openvino_genai.Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a plain text (a BOS token), if any."""
    (bare,) = _encode(tokenizer, ["a"], add_special_tokens=False)
    (full,) = _encode(tokenizer, ["a"], add_special_tokens=True)
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start])
    return ()
