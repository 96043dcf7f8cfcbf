"""The prompts of each model: few enough to know the answer to each of them beforehand."""

import json
import random
from functools import cache
from typing import Literal

from tests.support.pictures import HELD_OUT, data_url, png, question

Model = Literal["simulated", "default", "pictures"]
"""What generates: the simulated engine, the default model, or a vision-language model that is asked about pictures."""

PROMPTS: dict[Model, tuple[str, ...]] = {
    "simulated": tuple(f"Tell me about number {number}. [[tokens 100000]]" for number in range(8)),
    "default": tuple(f"Write one sentence about {topic}." for topic in ("rivers", "bread", "winter", "music")),
    "pictures": tuple(f"picture {number}" for number in range(8)),
}


VECTORS = {"embed": "embed-bert", "rerank": "rerank-bert"}
"""The models that compute vectors or scores instead of texts, with their files in ``tests/models``."""

_WORDS = "the a river stone music window of and in to is red blue old new Hello world"


def vector_prompts() -> dict[str, str]:
    """Return requests for vectors and scores, each with its model: bodies without its name, of up to three jobs."""
    dice, found = random.Random(7), dict[str, str]()
    for count in (1, 1, 5, 30, 80):
        texts = [" ".join(dice.choices(_WORDS.split(), k=dice.randint(1, 20))) for _ in range(count)]
        found[json.dumps({"input": texts})] = "embed"
        found[json.dumps({"query": texts[0], "documents": texts})] = "rerank"
    return found


def request_fields(model: Model, prompt: str, tokens: int) -> dict[str, object]:
    """Return the fields of a chat completion that depend on the prompt and on the length of its answer (tokens)."""
    fields: dict[str, object] = {"max_tokens": tokens}
    content: object = prompt
    if model == "pictures":
        content = _question(int(prompt.removeprefix("picture ")))
        # Answers about pictures are short: without this, few would be under way when something fails.
        fields["min_tokens"] = tokens
    return {"messages": [{"role": "user", "content": content}], **fields}


@cache
def _question(number: int) -> list[dict[str, object]]:
    drawn, asked = question(HELD_OUT + number)
    return [
        {"type": "image_url", "image_url": {"url": data_url(png(drawn.pixels(112, 112)))}},
        {"type": "text", "text": asked.text},
    ]
