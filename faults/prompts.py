"""The prompts of each model: few enough to know the answer to each of them beforehand."""

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
