"""The prompt maker of a real model, which needs the model's tokenizer and chat template only."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from worker.grammar.spelling import missing_bytes, spells_everyday_text
from worker.model.chat_template import OwnTemplates, own_templates
from worker.openvino.model_tokenizer import open_tokenizer
from worker.prompt.maker import Chat, TemplatePromptMaker
from worker.prompt.messages import PromptOptions
from worker.prompt.self_test import damaged_texts, wrong_chats
from worker.prompt.specials import SpecialTexts
from worker.prompt.template import ChatTemplate
from worker.prompt.tokenize import ModelTokenizer

_log = logging.getLogger(__name__)


def load_prompt_maker(options: PromptOptions) -> TemplatePromptMaker:
    """Load the tokenizer of the model.

    Raises :class:`RuntimeError` when the tokenizer can't be loaded or fails its test, and
    :class:`worker.prompt.template.ChatTemplateError` when the model's chat template can't be compiled.
    """
    path, chat_template = Path(options.path), options.chat_template
    own = OwnTemplates() if chat_template else own_templates(path)
    tokenizer = open_tokenizer(path, chat_template or own.default)
    missing = missing_bytes(tokenizer.pieces)
    if not spells_everyday_text(missing):
        _log.warning(
            "the vocabulary of %s has no tokens for single bytes: requests for structured output or forced tool calls "
            "are refused",
            path,
        )
    copied = tokenizer.template
    if own.default and copied and own.default.strip() != copied.strip():
        _log.warning("the chat template is that of %s in %s, not the one in openvino_tokenizer.xml", own.file, path)
    template, tool_template = (
        ChatTemplate(source, bos_token=tokenizer.bos, eos_token=tokenizer.eos) if source else None
        for source in (chat_template or own.default or copied, own.tool_use)
    )
    maker = TemplatePromptMaker(
        encode=tokenizer.encode,
        decode=tokenizer.decode,
        pieces=tokenizer.pieces,
        template=template,
        tool_template=tool_template,
        parsers=(options.tool_parser, options.reasoning_parser),
        special_texts=SpecialTexts(tokenizer.protected.values()),
        bos_tokens=tokenizer.begin,
        vocabulary_size=len(tokenizer.pieces),
        context_length=options.context_length,
        max_prompt=options.max_prompt,
        missing_bytes=missing,
        boundaries=(tokenizer.bos, tokenizer.eos),
        special_ids={text: token for token, text in tokenizer.special.items()},
    )
    if options.self_test != "off":
        findings = _test(tokenizer, maker.chats, refuses=options.self_test == "on")
        maker.description = msgspec.structs.replace(maker.description, findings=findings)
    return maker


def _test(tokenizer: ModelTokenizer, chats: Iterable[Chat], *, refuses: bool) -> tuple[str, ...]:
    findings = [*damaged_texts(tokenizer), *(one for chat in chats for one in wrong_chats(tokenizer, chat))]
    serious = [finding.text for finding in findings if finding.serious]
    if serious and refuses:
        raise RuntimeError(f"its self-test failed: {'; '.join(serious)}. It is served with --self-test warn.")
    return tuple(finding.text for finding in findings)
