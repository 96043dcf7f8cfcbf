"""Reads a record out of a text. The answer fits the schema, whatever the model would have written."""

import sys
from typing import Literal

import openai
from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str = Field(max_length=40)  # without a bound, an answer may reach max_tokens in the middle of a name
    age: int = Field(ge=0, le=150)
    mood: Literal["happy", "sad", "neutral"]


client = openai.OpenAI()
completion = client.chat.completions.parse(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Anna, who is 32, whistles on her way home."}],
    response_format=Person,
    temperature=0,
    max_tokens=200,
)
print(repr(completion.choices[0].message.parsed))
