"""Streams an answer."""

import sys

import openai

client = openai.OpenAI()
model = client.models.list().data[0].id
stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Why is the sky blue?"}],
    max_tokens=60,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage is not None:
        print(f"\n[{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens]")
