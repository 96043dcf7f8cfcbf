# ruff: noqa: RUF001
"""Tests the tokenizer of a model when it is loaded: what would silently make it another model."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from shared.protocol.request import ChatRequest, Message
from worker.prompt.conversation import render
from worker.prompt.maker import Chat
from worker.prompt.template import ChatTemplateError
from worker.prompt.tokenize import ModelTokenizer

_TEXTS = {
    "Latin": "The naïve fiancée paid 1,234.50 € – “twice”! Straße, Łódź, İstanbul",
    "Greek": "Η γρήγορη αλεπού",
    "Cyrillic": "Съешь ещё этих мягких булок",
    "Hebrew": "דג סקרן שט בים",
    "Arabic": "نص حكيم له سر قاطع",
    "Devanagari": "ऋषियों को सताने वाले",
    "Bengali": "আমার সোনার বাংলা",
    "Tamil": "வணக்கம் உலகம்",
    "Thai": "เป็นมนุษย์สุดประเสริฐ",
    "Georgian": "გამარჯობა მსოფლიო",
    "Chinese and Japanese": "我能吞下玻璃。いろはにほへと カタカナ",
    "Korean": "다람쥐 헌 쳇바퀴에",
    "emoji": "👩‍👩‍👧 🏳️‍🌈 👍🏽",
    "code": "def f(x):\n\tif x != 0:\n        return {'a': [1, 2]}  # \\n\r\n",
}


class Finding(NamedTuple):
    """What is wrong, human-readable. ``serious``: chats are not what the model was trained for."""

    text: str
    serious: bool


def damaged_texts(tokenizer: ModelTokenizer) -> Iterator[Finding]:
    """Yield the texts that are others after encoding and decoding, and special texts that become other tokens."""
    damaged: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for (name, text), ids in zip(_TEXTS.items(), tokenizer.encode(list(_TEXTS.values())), strict=True):
        read = tokenizer.decode(tuple(ids))
        if read == text:
            continue
        normal, own = (unicodedata.normalize("NFKC", one).casefold().split() for one in (read, text))
        damaged["normalises" if normal == own else "can't represent"].append((name, text, read))
    for what, texts in damaged.items():
        names = ", ".join(name for name, _, _ in texts)
        _, text, read = texts[0]
        yield Finding(f"the tokenizer {what} texts in {names}: {text!r} becomes {read!r}", serious=False)
    special = {token: text for token, text in tokenizer.special.items() if text}
    found = zip(special.items(), tokenizer.encode(list(special.values())), strict=True) if special else ()
    if broken := [text for (token, text), ids in found if ids != [token]]:
        yield Finding(f"{len(broken)} special tokens are not found in texts, as {broken[0]!r}", serious=False)


def wrong_chats(tokenizer: ModelTokenizer, chat: Chat) -> Iterator[Finding]:
    """Yield special texts of rendered chats that become other tokens, and an end token that ends no output."""
    question, answer = Message(role="user", content="Utopia"), Message(role="assistant", content="Avalon")
    asked = ChatRequest(model="", messages=(question, answer, question), turn="opened")
    answered = ChatRequest(model="", messages=(question, answer), turn="none")
    alone = [ChatRequest(model="", messages=(question,), turn=turn) for turn in ("opened", "none")]
    try:
        rendered, ended, opened, closed = (
            render(chat.template, request, chat.facts) for request in (asked, answered, *alone)
        )
    except ChatTemplateError:
        return
    special = tokenizer.protected | tokenizer.special
    texts = sorted(filter(None, special.values()), key=len, reverse=True)
    expected = {text for text in texts if text in rendered}
    (ids,) = tokenizer.encode([rendered])
    for text in expected - {special.get(token) for token in ids}:
        if not any(text in other for other in expected - {text}):
            yield Finding(f"the special token {text!r} of the chat template is not found in prompts", serious=True)
    if not tokenizer.ends:
        yield Finding("no token ends an output: config.json and the tokenizer name none", serious=True)
        return
    before, _, rest = ended.partition("Avalon")
    end = next((text for text in texts if rest.lstrip().startswith(text)), None)
    written = {token for token, text in special.items() if text and text in rest}
    # Some templates write markers before the end of an answer, and some open another one whether they should or not.
    expected_ends = written if opened != closed else {token for token in written if special[token] == end}
    if end is not None and not before.rstrip().endswith(end) and not expected_ends & tokenizer.ends:
        ends = ", ".join(repr(tokenizer.special.get(token, token)) for token in sorted(tokenizer.ends))
        yield Finding(f"{end!r} ends an answer in the chat template, but outputs end with {ends} only", serious=True)
