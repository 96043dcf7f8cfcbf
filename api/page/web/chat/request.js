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

function content({ text: written, images = [], files = [] }) {
  const text = inlined(written, files);
  if (!images.length) return text;
  const parts = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

// Returns the request body for the answer to the message `id`. Raises SettingsError.
export function requestBody(conversation, id) {
  const { settings } = conversation;
  const messages = upTo(conversation, id)
    .filter((message) => message.role === "user" || message.text)
    .map((message) => ({ role: message.role, content: content(message) }));
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  const schema = json(settings.schema, "The JSON schema");
  const body = {
    model: settings.model,
    messages,
    temperature: number(settings.temperature, "The temperature"),
    max_completion_tokens: number(settings.maxTokens, "The maximum number of tokens"),
    top_p: number(settings.topP, "Top p"),
    top_k: number(settings.topK, "Top k"),
    min_p: number(settings.minP, "Min p"),
    seed: number(settings.seed, "The seed"),
    tools: json(settings.tools, "The tools"),
    service_tier: settings.tier || undefined,
    reasoning_effort: settings.effort || undefined,
    response_format: schema && { type: "json_schema", json_schema: { name: "answer", schema } },
    stream: true,
    stream_options: { include_usage: true },
  };
  return JSON.parse(JSON.stringify(body));
}
