// The list of conversations: search, rename, pin, delete, import and export.

import { html, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { Icon } from "../icons.js";
import { chosen } from "../layout.js";
import { Menu } from "../menu.js";
import { useObservable } from "../state.js";
import * as actions from "./chats.js";
import { isEmpty, path } from "./conversation.js";
import { asJson, asMarkdown, download, imported } from "./transfer.js";

const DAY_MS = 86_400_000;

const matches = (conversation, words) =>
  conversation.title.toLowerCase().includes(words) ||
  Object.values(conversation.messages).some(({ text }) => text.toLowerCase().includes(words));

// Returns the name of the group that a conversation is listed in.
function group({ pinned, updated }) {
  if (pinned) return "Pinned";
  const today = new Date().setHours(0, 0, 0, 0);
  return updated >= today ? "Today" : updated >= today - DAY_MS ? "Yesterday" : "Older";
}

function grouped(list) {
  const sorted = [...list].sort((one, other) => Number(other.pinned ?? 0) - Number(one.pinned ?? 0) || other.updated - one.updated);
  const groups = new Map();
  for (const one of sorted) groups.set(group(one), [...(groups.get(group(one)) ?? []), one]);
  return [...groups];
}

function Renaming({ conversation: { id, title }, close }) {
  const [text, setText] = useState(title);
  const ended = useRef(false); // The field loses the focus when it goes.
  const end = (event, renamed) => {
    event.preventDefault();
    event.stopPropagation();
    if (ended.current) return;
    ended.current = true;
    if (renamed) actions.rename(id, renamed);
    close();
  };
  const save = (event) => end(event, text.trim());
  const onKey = (event) => event.key === "Escape" && end(event, "");
  return html`<form onSubmit=${save}>
    <input
      aria-label="Title of the conversation"
      ref=${(field) => field?.focus()}
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKey}
      onBlur=${save}
    />
  </form>`;
}

function Conversation({ conversation, shown }) {
  const [renaming, setRenaming] = useState(false);
  const { id, title, pinned } = conversation;
  if (renaming) return html`<li><${Renaming} conversation=${conversation} close=${() => setRenaming(false)} /></li>`;
  const show = () => {
    location.hash = "#chat";
    actions.showChat(id);
    chosen();
  };
  return html`<li class=${shown ? "shown" : ""}>
    <button type="button" class="title" aria-current=${shown ? "true" : undefined} title=${title} onClick=${show}>${title}</button>
    <${Menu}
      label=${`Actions for ${title}`}
      items=${[
        { icon: "edit", label: "Rename", act: () => setRenaming(true) },
        { icon: "pin", label: pinned ? "Unpin" : "Pin", act: () => actions.pin(id, !pinned) },
        { icon: "export", label: "Export as Markdown", act: () => download(`${title}.md`, "text/markdown", asMarkdown(title, path(conversation))) },
        { icon: "export", label: "Export as JSON", act: () => download(`${title}.json`, "application/json", asJson([conversation])) },
        { icon: "delete", label: "Delete", act: () => confirm(`Delete ${title}? This can't be undone.`) && actions.removeChat(id) },
      ]}
    />
  </li>`;
}

export function Conversations() {
  const { list, current } = useObservable(actions.chats);
  const [words, setWords] = useState("");
  const files = useRef(null);
  const kept = list.filter((one) => !isEmpty(one));
  const found = kept.filter((one) => matches(one, words.trim().toLowerCase()));
  const read = async ({ target }) => {
    for (const file of target.files) await actions.add(imported(await file.text()), file.name);
    target.value = "";
  };
  return html`<nav class="conversations" aria-label="Conversations">
    <div class="searching">
      <label class="search">
        <${Icon} name="search" />
        <input id="search" type="search" aria-label="Search conversations" placeholder="Search" value=${words} onInput=${(event) => setWords(event.target.value)} />
      </label>
      <${Menu}
        label="Import and export"
        items=${[
          { icon: "import", label: "Import JSON", act: () => files.current.click() },
          { icon: "export", label: "Export all as JSON", act: () => download("conversations.json", "application/json", asJson(kept)) },
        ]}
      />
      <input ref=${files} type="file" hidden multiple accept=".json,application/json" aria-label="Conversations to import" onChange=${read} />
    </div>
    <div class="list">
      ${found.length === 0 && html`<p class="faint">${kept.length ? "Nothing found." : "Conversations stay in this browser."}</p>`}
      ${grouped(found).map(
        ([name, members]) => html`<section key=${name} aria-label=${name}>
          <h2>${name}</h2>
          <ul>${members.map((one) => html`<${Conversation} key=${one.id} conversation=${one} shown=${one.id === current} />`)}</ul>
        </section>`,
      )}
    </div>
  </nav>`;
}
