// Asks a service through the AI SDK's providers, whose schemas check every answer and every event.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createAzure } from "@ai-sdk/azure";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

const [origin, model, call] = process.argv.slice(2);
const at = { baseURL: `${origin}/v1`, apiKey: "none" };
const openai = createOpenAI(at);
const models = {
  messages: createAnthropic(at)(model),
  responses: openai.responses(model),
  chat: openai.chat(model),
  completion: openai.completion(model),
  compatible: createOpenAICompatible({ ...at, name: "local", includeUsage: true })(model),
  azure: createAzure({ baseURL: `${origin}/openai`, apiKey: "none" }).chat(model),
};
const city = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
const tools = { weather: tool({ description: "Return the weather.", inputSchema: city }) };

const results = {};
for (const [name, one] of Object.entries(models)) {
  const called = name === "completion" ? {} : { tools };
  for (const prompt of ["Hello", call]) {
    const asked = { model: one, prompt, maxOutputTokens: 100, maxRetries: 0, ...called };
    const shown = ({ text, toolCalls, finishReason }) => ({ text, calls: toolCalls.map((made) => made.input), finishReason });
    const seen = (results[`${name} ${prompt === call ? "call" : "text"}`] = {});
    try {
      seen.whole = shown(await generateText(asked));
    } catch (error) {
      seen.error = `${error.message} ${JSON.stringify(error.cause ?? error.responseBody ?? "")}`;
    }
    const stream = streamText({ ...asked, onError: ({ error }) => (seen.error = `${error.message} ${JSON.stringify(error.cause ?? error)}`) });
    await stream.consumeStream();
    if (!seen.error)
      seen.streamed = shown({ text: await stream.text, toolCalls: await stream.toolCalls, finishReason: await stream.finishReason });
  }
}
console.log(JSON.stringify(results));
