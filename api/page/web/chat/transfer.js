// Conversations as files: JSON, which can be imported again, and Markdown.

import { isEmpty, newId, restored } from "./conversation.js";
import { settled } from "./kept.js";

const FORM = "vinoqueue.conversations";

const mapped = (values, change) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));

/** @param {object[]} conversations @returns {string} */
export const asJson = (conversations) => JSON.stringify({ form: FORM, version: 1, conversations }, null, 1);

/** Returns the conversations of an exported file, with new ids; null if it is no such file.
 * @param {string} text */
export function imported(text) {
  try {
    const { form, conversations } = JSON.parse(text);
    if (form !== FORM) return null;
    return conversations
      .map(restored)
      .filter((one) => one !== null && !isEmpty(one))
      .map((one) => ({ ...one, id: newId(), messages: mapped(one.messages, settled) }));
  } catch {
    return null;
  }
}

/** Returns the shown messages of a conversation.
 * @param {string} title @param {object[]} messages @returns {string} */
export function asMarkdown(title, messages) {
  const parts = messages.map(({ role, model, text, files = [], images = [], calls = [] }) => {
    const attached = [
      ...files.map(({ name }) => `*File: ${name}*`),
      ...images.map((_, at) => `*Image ${at + 1}*`),
      ...calls.map((call) => `*Tool call:* \`${call.name}(${call.arguments})\``),
    ];
    return [`## ${role === "user" ? "You" : model}`, ...attached, text].filter(Boolean).join("\n\n");
  });
  return `${[`# ${title}`, ...parts].join("\n\n")}\n`;
}

/** @param {string} name @param {string} type @param {string} text */
export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name.replace(/[\\/:*?"<>|\s]+/g, " ").trim();
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
