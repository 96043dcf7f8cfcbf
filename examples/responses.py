"""Starts an answer in the background, and reads it in two parts: a stream can be left and continued."""

import sys

import openai

client = openai.OpenAI()
text = ""
stream = client.responses.create(
    model=client.models.list().data[0].id,
    input=" ".join(sys.argv[1:]) or "Tell me about the sea.",
    max_output_tokens=60,
    background=True,
    stream=True,
)
for event in stream:
    if event.type == "response.created":
        answer = event.response.id
    if event.type == "response.output_text.delta":
        text += event.delta
        break  # as if the connection was lost
stream.close()
for later in client.responses.retrieve(answer, stream=True, starting_after=event.sequence_number):
    if later.type == "response.output_text.delta":
        text += later.delta
whole = client.responses.retrieve(answer)
print(whole.output_text)
print("nothing was lost" if text == whole.output_text else "the two parts are not the whole")
