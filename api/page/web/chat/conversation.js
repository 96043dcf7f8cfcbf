// Conversations: trees of messages, of which one path is shown. Editing and retrying add branches; nothing is lost.

import { keptMessage, keptSettings } from "./kept.js";

const ROOT = "";

// Browsers have random UUIDs with HTTPS or a loopback address only.
export const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;

export const isEmpty = ({ messages }) => !Object.keys(messages).length;

export function newConversation(settings) {
  const now = Date.now();
  return {
    id: newId(),
    title: "New conversation",
    created: now,
    updated: now,
    settings: keptSettings(settings),
    messages: {},
    shown: {},
    next: 1,
  };
}

// Returns a conversation that a browser or a file has kept, without the messages and members that can't be shown; null if it
// is none.
export function restored(kept) {
  const { id, title, created, updated, edited, pinned } = kept ?? {};
  if (typeof kept?.messages !== "object" || kept.messages === null) return null;
  const messages = {};
  // A parent is older than its messages, so that every path ends.
  for (const key of Object.keys(kept.messages).sort((one, other) => Number(one) - Number(other))) {
    const message = kept.messages[key];
    const parent = message?.parent;
    const known = parent === ROOT || (typeof parent === "string" && Object.hasOwn(messages, parent) && Number(parent) < Number(key));
    if (/^[1-9][0-9]{0,14}$/.test(key) && message?.id === key && known) messages[key] = keptMessage(message);
  }
  const shown = {};
  for (const message of Object.values(messages)) {
    const chosen = kept.shown?.[message.parent];
    if (chosen === message.id || messages[chosen]?.parent !== message.parent) shown[message.parent] = message.id;
  }
  const time = (value) => (Number.isFinite(value) ? value : Date.now());
  return {
    id,
    title: typeof title === "string" ? title : "Conversation",
    created: time(created),
    updated: time(updated),
    ...(Number.isFinite(edited) && { edited }),
    ...(typeof pinned === "boolean" && { pinned }),
    settings: keptSettings(kept.settings),
    messages,
    shown,
    next: Math.max(0, ...Object.keys(messages).map(Number)) + 1,
  };
}

const titleOf = ({ text, files = [] }) => text.trim().slice(0, 60) || files[0]?.name || "Image";

// Returns the conversation with another message below the message `parent`, shown from now on.
export function added(conversation, parent, message) {
  const id = String(conversation.next);
  const title = isEmpty(conversation) ? titleOf(message) : conversation.title;
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

/** Returns two forms of a conversation, from two tabs, as one: with all messages, the branch of the latest message, and the
 * title and settings that were edited last. Returns `one` itself if `other` has nothing to add. Of a message that both
 * have, that of `one` is taken unless `otherIsBetter`.
 * @param {object} one @param {object} other
 * @param {(message: object, other: object) => boolean} otherIsBetter */
export function merged(one, other, otherIsBetter) {
  const better = Object.values(other.messages).filter(
    (message) => !(message.id in one.messages) || otherIsBetter(one.messages[message.id], message),
  );
  const edited = (other.edited ?? 0) > (one.edited ?? 0);
  if (!better.length && !edited) return one;
  const [older, newer] = other.updated > one.updated ? [one, other] : [other, one];
  return {
    ...(edited ? other : one),
    updated: newer.updated,
    messages: { ...one.messages, ...Object.fromEntries(better.map((message) => [message.id, message])) },
    shown: { ...older.shown, ...newer.shown },
    next: Math.max(one.next, other.next),
  };
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
