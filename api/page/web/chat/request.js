// The request body for an answer, from the messages before it and the settings of the conversation.

import { inlined } from "./attachments.js";
import { upTo } from "./conversation.js";

export class SettingsError extends Error {}

function number(text, name) {
  if (text === "") return undefined;
  const value = Number(text);
  if (Number.isNaN(value)) throw new SettingsError(`${name} is not a number.`);
  return value;
}

function json(text, name) {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingsError(`${name}: ${error.message}`);
  }
}

// Chat completions have functions in an object of their own.
const flat = (tool) => (tool?.function ? { type: "function", ...tool.function } : tool);

function content({ text: written, images = [], files = [] }) {
  const text = inlined(written, files);
  if (!images.length) return text;
  const parts = images.map((url) => ({ type: "input_image", image_url: url }));
  return text ? [...parts, { type: "input_text", text }] : parts;
}

/** Returns the body of a request for the answer to the message `id`. Raises SettingsError. */
export function requestBody(conversation, id, settings = conversation.settings) {
  const schema = json(settings.schema, "The JSON schema");
  const tools = json(settings.tools, "The tools");
  const body = {
    model: settings.model,
    instructions: settings.system.trim() ? settings.system : undefined,
    input: upTo(conversation, id)
      .filter((message) => message.role === "user" || message.text)
      .map((message) => ({ role: message.role, content: content(message) })),
    temperature: number(settings.temperature, "The temperature"),
    top_p: number(settings.topP, "Top p"),
    top_k: number(settings.topK, "Top k"),
    min_p: number(settings.minP, "Min p"),
    max_output_tokens: number(settings.maxTokens, "The maximum number of tokens"),
    seed: number(settings.seed, "The seed"),
    tools: Array.isArray(tools) ? tools.map(flat) : tools,
    service_tier: settings.tier || undefined,
    reasoning: settings.effort ? { effort: settings.effort } : undefined,
    text: schema && { format: { type: "json_schema", name: "answer", schema } },
    stream: true,
  };
  return JSON.parse(JSON.stringify(body));
}
