"""Prompts that no two requests of a measurement share, or a prefix cache would spare one side its work."""

import random

_SUBJECTS = ("rivers", "mountains", "trains", "bread", "clocks", "birds", "bridges", "gardens")
_WORDS = (
    "river mountain train bread clock bird bridge garden window paper summer winter music water stone field house road "
    "letter market island forest engine bottle doctor farmer teacher village harbour morning evening silver copper"
)
VOCABULARY = tuple(_WORDS.split())
"""Words of one token each in most vocabularies."""


def distinct_prompts(turn: int, count: int, words: int = 0) -> list[str]:
    """The ``count`` prompts of one turn, each different from its first words on; ``words`` more make them longer."""
    return [_prompt(turn * 1000 + at, _SUBJECTS[at % len(_SUBJECTS)], words) for at in range(count)]


def _prompt(number: int, subject: str, words: int) -> str:
    prompt = f"Write about {subject}, number {number}."
    if not words:
        return prompt
    dice = random.Random(number)  # noqa: S311 - texts, no secrets
    return f"{prompt} Think of {' '.join(dice.choices(VOCABULARY, k=words))}."
