"""Lets the model call a function, and answer with its result."""

import json

import openai
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam


def temperature(city: str) -> str:
    return f"{len(city)} degrees Celsius in {city}"


TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "temperature",
            "description": "The temperature in a city now",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 40}},
                "required": ["city"],
            },
        },
    }
]
client = openai.OpenAI()
model = client.models.list().data[0].id
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How warm is it in Oslo?"}]
# "required" forces a call. A model that is trained to call tools does with "auto".
asked = client.chat.completions.create(
    model=model, messages=messages, tools=TOOLS, tool_choice="required", temperature=0, max_tokens=100
).choices[0]
messages.append(asked.message.model_dump(exclude_none=True))  # type: ignore[arg-type]
for call in asked.message.tool_calls or []:
    if call.type == "function":
        result = temperature(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(client.chat.completions.create(model=model, messages=messages, max_tokens=60).choices[0].message.content)
