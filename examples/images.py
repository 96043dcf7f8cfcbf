"""Asks about a picture, which is sent in the request."""

import base64
import mimetypes
import sys
from pathlib import Path

import openai

picture = Path(sys.argv[1])
data = base64.b64encode(picture.read_bytes()).decode()
client = openai.OpenAI()
completion = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is in this picture?"},
                {"type": "image_url", "image_url": {"url": f"data:{mimetypes.guess_type(picture)[0]};base64,{data}"}},
            ],
        }
    ],
    max_tokens=100,
)
print(completion.choices[0].message.content)
