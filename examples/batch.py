"""Sends many requests as one batch, which is served while nobody else waits."""

import json
import sys
import time

import openai

client = openai.OpenAI()
model = client.models.list().data[0].id
lines = [
    json.dumps(
        {
            "custom_id": question,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 20},
        }
    )
    for question in sys.argv[1:] or ("What is a queue?", "What is a lease?", "What is a token?")
]
file = client.files.create(file=("questions.jsonl", "\n".join(lines).encode()), purpose="batch")
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in ("completed", "failed", "expired", "cancelled"):
    time.sleep(0.5)
    batch = client.batches.retrieve(batch.id)
print(batch.status, batch.request_counts)
for line in client.files.content(batch.output_file_id or "").text.splitlines():
    result = json.loads(line)
    print(result["custom_id"], "->", result["response"]["body"]["choices"][0]["message"]["content"])
