"""Streams a long answer, and prints the longest pause. End the worker meanwhile: another one continues the text."""

import sys
import time

import openai

client = openai.OpenAI()
stream = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Write a long story."}],
    max_tokens=600,
    stream=True,
)
last, longest, reason = time.monotonic(), 0.0, None
for count, chunk in enumerate(stream, start=1):
    longest, last = max(longest, time.monotonic() - last), time.monotonic()
    reason = chunk.choices[0].finish_reason
    if count % 100 == 0:
        print(f"{count} chunks", flush=True)
print(f"the answer ended with {reason!r}; its longest pause was {longest:.1f} s")
