// Keyboard shortcuts, and the list of them.

import { html } from "./vendor/htm-preact-3.1.1.js";
import { startChat, stopCurrent } from "./chat/chats.js";
import { Drawer } from "./drawer.js";
import { openDialog, toggleSidebar } from "./layout.js";

const focus = (selector) => requestAnimationFrame(() => document.querySelector(selector)?.focus());

function newChat() {
  location.hash = "#chat";
  startChat();
  focus(".composer textarea");
}

function search() {
  toggleSidebar(true);
  focus("#search");
}

/** @type {{keys: string, does: string, act?: () => void}[]} Without `act`, the element with the focus does it. */
const SHORTCUTS = [
  { keys: "Enter", does: "Send the message" },
  { keys: "Shift+Enter", does: "Start a new line" },
  { keys: "Escape", does: "Stop the answer", act: stopCurrent },
  { keys: "/", does: "Go to the message", act: () => focus(".composer textarea") },
  { keys: "Ctrl+Shift+O", does: "New conversation", act: newChat },
  { keys: "Ctrl+K", does: "Search the conversations", act: search },
  { keys: "Ctrl+B", does: "Open or close the side bar", act: () => toggleSidebar() },
  { keys: "Ctrl+,", does: "Settings of the conversation", act: () => ((location.hash = "#chat"), openDialog("settings")) },
  { keys: "?", does: "This list", act: () => openDialog("shortcuts") },
];

function pressed(event) {
  const sign = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const control = event.ctrlKey || event.metaKey;
  return `${control ? "Ctrl+" : ""}${control && event.shiftKey ? "Shift+" : ""}${sign}`;
}

const touched = matchMedia("(hover: none) and (pointer: coarse)");

/** Whether a key sends what is written. On a phone, Enter starts a new line, because its keyboard has no Shift+Enter.
 * @param {KeyboardEvent} event */
export const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && !touched.matches;

export function listenForKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing || document.querySelector("dialog[open], :popover-open")) return;
    const keys = pressed(event);
    const found = SHORTCUTS.find((one) => one.keys === keys && one.act);
    const writing = event.target.matches?.("input, textarea, select");
    if (!found || (writing && keys.length === 1)) return;
    if (keys !== "Escape") event.preventDefault();
    found.act();
  });
}

export function Shortcuts() {
  return html`<${Drawer} title="Keyboard shortcuts" kind="centre" close=${() => openDialog("")}>
    <dl class="shortcuts">
      ${SHORTCUTS.map(
        ({ keys, does }) => html`<div key=${keys}>
          <dt>${does}</dt>
          <dd>${keys.split(/(?<=.)\+/).map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dd>
        </div>`,
      )}
    </dl>
  </${Drawer}>`;
}
