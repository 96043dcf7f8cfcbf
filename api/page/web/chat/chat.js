// The chat: one conversation, with its model above and the composer below.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { IconButton } from "../icons.js";
import { layout, openDialog } from "../layout.js";
import { useObservable } from "../state.js";
import * as actions from "./chats.js";
import { Composer } from "./composer.js";
import { isEmpty, lastId, path, siblings } from "./conversation.js";
import { Message } from "./message.js";
import { ModelPicker } from "./model_picker.js";
import { useModels } from "./models.js";
import { Settings } from "./settings.js";

const NEAR_END = 80;

const STARTERS = [
  ["Explain", "how a queue keeps a busy service fair"],
  ["Write", "a Python function that merges two sorted lists"],
  ["Draft", "a short message that moves a meeting to Friday"],
  ["Compare", "SQLite and PostgreSQL in a table"],
];

// Keeps the end in view while an answer grows, unless the reader has scrolled up. Returns the place that scrolls, its
// listener, and whether it is at its end.
function useFollowing(messages, shown) {
  const place = useRef(null);
  const following = useRef(true);
  const [atEnd, setAtEnd] = useState(true);
  const toEnd = () => {
    following.current = true;
    place.current.scrollTop = place.current.scrollHeight;
  };
  useEffect(() => void (following.current = true), [shown]);
  useEffect(() => {
    if (place.current && following.current) toEnd();
  }, [messages]);
  useEffect(() => {
    // Code and math are drawn after their message. A message that is edited has the focus, and stays in view.
    const grown = new ResizeObserver(([{ target }]) => following.current && !target.querySelector(".editor") && toEnd());
    if (place.current) grown.observe(place.current.firstElementChild);
    return () => grown.disconnect();
  }, [shown]);
  const onScroll = ({ currentTarget: box }) => {
    following.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
    setAtEnd(following.current);
  };
  return { place, onScroll, atEnd, toEnd };
}

// What a conversation shows before its first message.
function Start({ model }) {
  return html`<div class="empty">
    <h2>Ask ${model || "something"}</h2>
    <p>Messages stay in this browser. An answer goes on if its worker dies, and if you close this page.</p>
    <div class="starters">
      ${STARTERS.map(
        ([verb, rest]) => html`<button key=${verb} type="button" class="second" onClick=${() => actions.send(`${verb} ${rest}.`, [], [])}>
          <b>${verb}</b> ${rest}
        </button>`,
      )}
    </div>
  </div>`;
}

export function Chat({ opener }) {
  const { list, current, notice } = useObservable(actions.chats);
  const { dialog } = useObservable(layout);
  const { served: models, problem } = useModels();
  const conversation = list.find(({ id }) => id === current);
  const messages = conversation ? path(conversation) : [];
  const { place, onScroll, atEnd, toEnd } = useFollowing(conversation?.messages, current);
  const settings = conversation?.settings;

  useEffect(() => actions.requireModel(models.map(({ id }) => id)), [models, current]);

  if (!conversation) return html`<main class="view"></main>`;
  const model = models.find(({ id }) => id === settings.model);
  const last = lastId(conversation);
  return html`<main class="view chat">
    <h1 class="hidden">Chat</h1>
    <div class="bar">
      ${opener}
      <${ModelPicker} models=${models} chosen=${settings.model} />
      <${IconButton} icon="settings" label="Settings" onClick=${() => openDialog("settings")} />
    </div>
    <div class="messages" role="log" tabindex="0" aria-label="Messages" ref=${place} onScroll=${onScroll}>
      <div class="column">
        ${messages.length === 0 && html`<${Start} model=${settings.model} />`}
        ${messages.map(
          (message) => html`<${Message}
            key=${`${current} ${message.id}`}
            message=${message}
            live=${actions.isRunning(message.id)}
            all=${siblings(conversation, message.id)}
          />`,
        )}
      </div>
    </div>
    <div class="below">
      ${!atEnd && html`<${IconButton} icon="down" label="To the end" class="icon-button to-end" onClick=${toEnd} />`}
      ${(notice || problem) && html`<p class="error" role="alert">${notice || problem}</p>`}
      <${Composer}
        key=${current}
        draft=${isEmpty(conversation) ? "" : current}
        model=${settings.model}
        takesImages=${Boolean(model?.input_modalities?.includes("image"))}
        answering=${last && actions.isRunning(last) ? last : null}
        onSend=${actions.send}
      />
    </div>
    ${dialog === "settings" && html`<${Settings} settings=${settings} close=${() => openDialog("")} />`}
  </main>`;
}
