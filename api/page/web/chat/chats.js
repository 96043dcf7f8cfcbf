// The conversations of this browser and what a user does with them: send, stop, retry, edit, branch.

import { observable, recall, remember } from "../state.js";
import { answer as follow } from "./answer.js";
import * as tree from "./conversation.js";
import { SettingsError, requestBody } from "./request.js";
import { deleteConversation, loadConversation, loadConversations, saveConversation, watchTabs } from "./storage.js";

const SAVE_MS = 1000;
const ACCEPTED_MS = 3000;

// {list: conversations, newest first; current: id of the shown one; notice: what to tell the user}
export const chats = observable({ list: [], current: "", notice: "" });

const unsaved = new Map();

export const current = () => chats.get().list.find(({ id }) => id === chats.get().current);

const find = (id) => chats.get().list.find((one) => one.id === id);

export function notify(notice) {
  chats.set({ ...chats.get(), notice });
}

function keep(conversation) {
  const { list } = chats.get();
  chats.set({ ...chats.get(), list: list.map((one) => (one.id === conversation.id ? conversation : one)) });
  if (unsaved.has(conversation.id)) return;
  unsaved.set(conversation.id, setTimeout(() => save(conversation.id), SAVE_MS));
}

function save(id) {
  clearTimeout(unsaved.get(id));
  unsaved.delete(id);
  const newest = find(id);
  return newest && !tree.isEmpty(newest) ? saveConversation(newest) : Promise.resolve();
}

addEventListener("pagehide", () => [...unsaved.keys()].forEach(save));

export async function loadChats() {
  const kept = await loadConversations();
  chats.set({ ...chats.get(), list: [...chats.get().list, ...kept] });
  if (!chats.get().list.length) startChat();
  else if (!current()) chats.set({ ...chats.get(), current: chats.get().list[0].id });
  kept.forEach(resume);
  watchTabs(adopt);
}

// Takes what another tab has stored of a conversation, but for the answers that this one follows itself.
async function adopt(id) {
  const stored = await loadConversation(id);
  const mine = find(id);
  if (!stored) {
    if (mine && !tree.isEmpty(mine)) drop(id);
    return;
  }
  const changed = mine ? tree.merged(stored, mine, ({ id: message }) => running.has(place(message, id))) : stored;
  const { list } = chats.get();
  chats.set({ ...chats.get(), list: mine ? list.map((one) => (one.id === id ? changed : one)) : [changed, ...list] });
  resume(changed);
}

function drop(id) {
  const list = chats.get().list.filter((one) => one.id !== id);
  chats.set({ ...chats.get(), list, current: chats.get().current === id ? (list[0]?.id ?? "") : chats.get().current });
  if (!list.length) startChat();
}

export function startChat() {
  const started = tree.newConversation(recall("settings", {}));
  const list = chats.get().list.filter((one) => !tree.isEmpty(one));
  chats.set({ list: [started, ...list], current: started.id, notice: "" });
}

export function showChat(id) {
  chats.set({ ...chats.get(), current: id, notice: "" });
}

const drafts = () => recall("draft", {});

/** The text under a name that was not sent, also after the page was closed.
 * @param {string} name @returns {string} */
export const draftOf = (name) => drafts()[name] ?? "";

export const keepDraft = (name, text) => remember("draft", { ...drafts(), [name]: text || undefined });

export function removeChat(id) {
  keepDraft(id, "");
  for (const message of Object.values(find(id)?.messages ?? {})) stop(message.id, id);
  deleteConversation(id);
  drop(id);
}

function change(id, fields) {
  keep({ ...find(id), ...fields, edited: Date.now() });
  save(id);
}

export const rename = (id, title) => change(id, { title });

export const pin = (id, pinned) => change(id, { pinned });

// Adds the conversations of the file `name`; null where that has none.
export async function add(conversations, name) {
  if (!conversations?.length) {
    notify(`${name} has no conversations of this page.`);
    return;
  }
  await Promise.all(conversations.map(saveConversation));
  chats.set({ list: [...conversations, ...chats.get().list], current: conversations[0].id, notice: "" });
}

export function configure(fields) {
  const changed = { ...current(), settings: { ...current().settings, ...fields }, edited: Date.now() };
  remember("settings", changed.settings);
  keep(changed);
}

// Chooses the first of the `served` models where the shown conversation has another.
export function requireModel(served) {
  const conversation = current();
  if (!served.length || !conversation || served.includes(conversation.settings.model)) return;
  configure({ model: served[0] });
  notify("");
}

const running = new Map();

const place = (message, conversation) => `${conversation} ${message}`;

// Whether this tab can stop the answer `message` of the shown conversation.
export const isRunning = (message) =>
  running.has(place(message, chats.get().current)) && current().messages[message].pending;

// Makes or follows the answer `id` of a conversation.
function run(chat, id, body) {
  const read = () => find(chat)?.messages[id];
  const show = (fields) => {
    const conversation = find(chat);
    if (conversation) keep(tree.changed(conversation, id, fields));
  };
  const stopping = new AbortController();
  const ended = async () => {
    const stored = (await loadConversation(chat))?.messages[id];
    return stored && !stored.pending ? stored : null;
  };
  running.set(place(id, chat), stopping);
  follow(read(), body, stopping.signal, { show, current: read, keep: () => save(chat), ended }).finally(() => {
    running.delete(place(id, chat));
    save(chat);
  });
}

// Goes on with the answers that were not complete when the page was closed, or that another tab has asked for.
function resume({ id: chat, messages }) {
  for (const { id, pending, response } of Object.values(messages)) {
    if (!pending || running.has(place(id, chat))) continue;
    if (response) run(chat, id, null);
    else setTimeout(() => giveUp(chat, id), ACCEPTED_MS);
  }
}

// Another tab may still send the request.
function giveUp(chat, id) {
  const { pending, response, seen } = find(chat)?.messages[id] ?? {};
  if (!pending || response || running.has(place(id, chat))) return;
  const missed = seen === undefined ? "the service had the message" : "the answer was complete";
  keep(tree.changed(find(chat), id, { pending: false, error: `The page was closed before ${missed}.` }));
}

// Keeps a conversation, asks for an answer to its message `question`, and returns true. Tells the user why the settings
// allow no request, and returns false.
function answer(conversation, question) {
  const { id: chat, settings } = conversation;
  let body;
  try {
    body = requestBody(conversation, question);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    notify(error.message);
    return false;
  }
  if (!body.model) {
    notify("No model is served now.");
    return false;
  }
  notify("");
  const message = { role: "assistant", text: "", model: body.model, settings, pending: true };
  const [grown, id] = tree.added(conversation, question, message);
  keep(grown);
  save(chat);
  run(chat, id, body);
  return true;
}

export function send(text, images, files) {
  const started = tree.isEmpty(current());
  const sent = answer(...tree.added(current(), tree.lastId(current()), { role: "user", text, images, files }));
  if (sent && started) keepDraft("", ""); // From now on, the draft has the name of the conversation.
  return sent;
}

export function stop(message, conversation = chats.get().current) {
  running.get(place(message, conversation))?.abort();
}

export const stopCurrent = () => current() && stop(tree.lastId(current()));

export const retry = (message) => answer(current(), current().messages[message].parent);

export function edit(message, text) {
  const { parent, images, files } = current().messages[message];
  answer(...tree.added(current(), parent, { role: "user", text, images, files }));
}

export const branch = (message) => keep(tree.choose(current(), message));
