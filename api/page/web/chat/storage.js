// Conversations in the browser's IndexedDB. Without it, as in some private windows, they last as long as the page.

import { restored } from "./conversation.js";

const NAME = "conversations";

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

async function run(mode, work) {
  try {
    const database = await open();
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(NAME, mode);
      const asked = work(transaction.objectStore(NAME));
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error);
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

export const saveConversation = (conversation) => run("readwrite", (store) => store.put(conversation));

export const deleteConversation = (id) => run("readwrite", (store) => store.delete(id));
