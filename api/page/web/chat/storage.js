// Conversations in the browser's IndexedDB. Without it, as in some private windows, they last as long as the page. Other
// tabs are told what has changed.

import { merged, restored } from "./conversation.js";

const NAME = "conversations";

const tabs = new BroadcastChannel("vinoqueue.conversations");

let opened = null;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const asked = indexedDB.open("vinoqueue", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(NAME, { keyPath: "id" });
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
}

// Runs `work` in a transaction, and returns the result of the request that it returns.
async function run(mode, work) {
  try {
    const database = await open();
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(NAME, mode);
      const asked = work(transaction.objectStore(NAME));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = () => reject(transaction.error);
      // At once, because the page may be about to close.
      transaction.commit();
    });
  } catch (error) {
    console.warn("conversations are not kept:", error);
    return undefined;
  }
}

export async function loadConversations() {
  const found = (await run("readonly", (store) => store.getAll())) ?? [];
  return found
    .map(restored)
    .filter((one) => one !== null)
    .sort((one, other) => other.updated - one.updated);
}

export async function loadConversation(id) {
  const found = await run("readonly", (store) => store.get(id));
  return found ? restored(found) : null;
}

/** Stores a conversation, with what another tab has stored of it in the meantime.
 * @param {object} conversation */
export async function saveConversation(conversation) {
  const replaced = await run("readwrite", (store) => {
    const asked = store.get(conversation.id);
    store.put(conversation);
    return asked;
  });
  const other = replaced && restored(replaced);
  // An answer that another tab has followed to its end is complete.
  const whole = other ? merged(conversation, other, (mine, stored) => mine.pending && !stored.pending) : conversation;
  if (whole !== conversation) await run("readwrite", (store) => store.put(whole));
  tabs.postMessage(conversation.id);
}

export async function deleteConversation(id) {
  await run("readwrite", (store) => store.delete(id));
  tabs.postMessage(id);
}

/** Calls `changed` with the id of each conversation that another tab has saved or deleted.
 * @param {(id: string) => void} changed */
export const watchTabs = (changed) => tabs.addEventListener("message", ({ data }) => changed(data));
