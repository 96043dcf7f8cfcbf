// Conversations: trees of messages, of which one path is shown. Editing and retrying add branches; nothing is lost.

const ROOT = "";

export const DEFAULTS = {
  model: "",
  system: "",
  temperature: "",
  maxTokens: "1024",
  seed: "",
  schema: "",
  tools: "",
  tier: "",
  effort: "",
};

// Returns settings that the browser kept: all fields are texts, and those of another form have their default.
function keptSettings(kept) {
  return Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, value]) => [name, typeof kept?.[name] === "string" ? kept[name] : value]),
  );
}

export function newConversation(settings) {
  const now = Date.now();
  return {
    id: crypto.randomUUID ? crypto.randomUUID() : `${now}-${Math.random().toString(36).slice(2)}`,
    title: "New conversation",
    created: now,
    updated: now,
    settings: keptSettings(settings),
    messages: {},
    shown: {},
    next: 1,
  };
}

// Returns a conversation that the browser kept, perhaps for another version of the page; null if it can't be shown.
export function restored(kept) {
  const { title, messages, shown } = kept;
  if (typeof title !== "string" || !messages || !shown) return null;
  for (const [id, message] of Object.entries(messages)) {
    if (message?.id !== id || typeof message.text !== "string") return null;
    // A parent is older than its messages, so that every path ends.
    if (message.parent !== ROOT && !(message.parent in messages && Number(message.parent) < Number(id))) return null;
  }
  if (Object.entries(shown).some(([parent, id]) => messages[id]?.parent !== parent)) return null;
  const next = Math.max(0, ...Object.keys(messages).map(Number)) + 1;
  return { ...kept, settings: keptSettings(kept.settings), next };
}

// Returns the conversation with another message below the message `parent`, shown from now on.
export function added(conversation, parent, message) {
  const id = String(conversation.next);
  const titled = message.role === "user" && !Object.keys(conversation.messages).length;
  const title = titled ? message.text.trim().slice(0, 60) || "Image" : conversation.title;
  const changed = {
    ...conversation,
    title,
    updated: Date.now(),
    next: conversation.next + 1,
    messages: { ...conversation.messages, [id]: { ...message, id, parent } },
    shown: { ...conversation.shown, [parent]: id },
  };
  return [changed, id];
}

export function changed(conversation, id, fields) {
  const message = conversation.messages[id];
  if (!message) return conversation;
  return { ...conversation, messages: { ...conversation.messages, [id]: { ...message, ...fields } } };
}

export function siblings(conversation, id) {
  const { parent } = conversation.messages[id];
  return Object.values(conversation.messages).filter((message) => message.parent === parent).map(({ id }) => id);
}

export function choose(conversation, id) {
  const { parent } = conversation.messages[id];
  return { ...conversation, shown: { ...conversation.shown, [parent]: id } };
}

// Returns the shown messages in order.
export function path(conversation) {
  const found = [];
  for (let id = conversation.shown[ROOT]; id; id = conversation.shown[id]) found.push(conversation.messages[id]);
  return found;
}

export function lastId(conversation) {
  return path(conversation).at(-1)?.id ?? ROOT;
}

// Returns the messages above `id`, in order, and that message itself.
export function upTo(conversation, id) {
  const found = [];
  for (let at = id; at; at = conversation.messages[at].parent) found.unshift(conversation.messages[at]);
  return found;
}

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

function content({ text, images = [] }) {
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
