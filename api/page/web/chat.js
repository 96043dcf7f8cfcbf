// The chat: the list of conversations, the shown one, and the composer.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { apiKey, listModels } from "./api.js";
import * as actions from "./chats.js";
import { lastId, path } from "./conversation.js";
import { fleet } from "./fleet.js";
import { ACCEPTED, asDataUrl, picturesIn } from "./images.js";
import { Message } from "./message.js";
import { ModelField, Settings } from "./settings.js";
import { useObservable } from "./state.js";

const MODELS_MS = 10_000;
const NEAR_END = 80;

function useModels() {
  const [models, setModels] = useState([]);
  const key = useObservable(apiKey);
  useEffect(() => {
    const load = () =>
      document.hidden ||
      listModels().then(setModels, (error) => {
        setModels([]);
        actions.notify(error.status === 401 ? "This service needs an API key. Enter yours above." : error.message);
      });
    actions.notify("");
    load();
    const timer = setInterval(load, MODELS_MS);
    return () => clearInterval(timer);
  }, [key]);
  return models;
}

function Conversations({ list, shown }) {
  return html`<nav class="conversations" aria-label="Conversations">
    <button onClick=${actions.startChat}>New conversation</button>
    <ul>
      ${list.map(
        ({ id, title }) => html`<li key=${id}>
          <button class="quiet title" aria-current=${id === shown ? "true" : undefined} onClick=${() => actions.showChat(id)}>
            ${title}
          </button>
          <button class="quiet" aria-label=${`Delete ${title}`} onClick=${() => actions.removeChat(id)}>✕</button>
        </li>`,
      )}
    </ul>
  </nav>`;
}

function Slots({ model }) {
  const { document } = useObservable(fleet);
  const found = document?.models.find(({ id, aliases }) => id === model || aliases.includes(model));
  if (!found) return null;
  return html`<span class="slots">${found.used} of ${found.slots} slots in use</span>`;
}

function Composer({ model, takesImages, answering, onSend }) {
  const [text, setText] = useState("");
  const [images, setImages] = useState([]);
  const [over, setOver] = useState(false);
  const files = useRef(null);

  async function add(found) {
    const pictures = picturesIn(found);
    if (!pictures.length) return false;
    if (!takesImages) {
      actions.notify(`The model ${model} takes no images.`);
      return true;
    }
    const urls = await Promise.all(pictures.map(asDataUrl));
    setImages((before) => [...before, ...urls]);
    return true;
  }

  function submit(event) {
    event?.preventDefault();
    if (answering || !(text.trim() || images.length)) return;
    if (!onSend(text, images)) return;
    setText("");
    setImages([]);
  }

  const onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const onPaste = (event) => {
    if (picturesIn(event.clipboardData.files).length) {
      event.preventDefault();
      add(event.clipboardData.files);
    }
  };
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    add(event.dataTransfer.files);
  };

  return html`<form
    class=${`composer ${over ? "over" : ""}`}
    onSubmit=${submit}
    onDragOver=${(event) => (event.preventDefault(), setOver(true))}
    onDragLeave=${() => setOver(false)}
    onDrop=${onDrop}
  >
    ${images.length > 0 &&
    html`<ul class="attached">
      ${images.map(
        (url, at) => html`<li key=${at}>
          <img src=${url} alt=${`Image ${at + 1} to send`} />
          <button type="button" aria-label=${`Remove image ${at + 1}`} onClick=${() => setImages(images.filter((_, other) => other !== at))}>✕</button>
        </li>`,
      )}
    </ul>`}
    <textarea
      aria-label="Message"
      rows="3"
      placeholder="Ask something. Shift+Enter starts a new line."
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKey}
      onPaste=${onPaste}
    ></textarea>
    <div class="actions">
      ${takesImages &&
      html`<button type="button" class="quiet" onClick=${() => files.current.click()}>Add image</button>
        <input
          ref=${files}
          type="file"
          hidden
          multiple
          accept=${ACCEPTED}
          aria-label="Images"
          onChange=${(event) => (add(event.target.files), (event.target.value = ""))}
        />`}
      <${Slots} model=${model} />
      ${answering
        ? html`<button type="button" class="stop" onClick=${() => actions.stop(answering)}>Stop</button>`
        : html`<button type="submit">Send</button>`}
    </div>
  </form>`;
}

// Keeps the end in view while an answer grows, unless the reader has scrolled up.
function useFollowing(messages, shown) {
  const place = useRef(null);
  const following = useRef(true);
  useEffect(() => {
    following.current = true;
  }, [shown]);
  useEffect(() => {
    const box = place.current;
    if (box && following.current) box.scrollTop = box.scrollHeight;
  }, [messages]);
  const onScroll = ({ currentTarget: box }) => {
    following.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
  };
  return [place, onScroll];
}

export function Chat() {
  const { list, current, notice } = useObservable(actions.chats);
  const models = useModels();
  const conversation = list.find(({ id }) => id === current);
  const messages = conversation ? path(conversation) : [];
  const [place, onScroll] = useFollowing(conversation?.messages, current);
  const settings = conversation?.settings;

  useEffect(() => actions.requireModel(models.map(({ id }) => id)), [models, current]);

  if (!conversation) return html`<main class="chat"></main>`;
  const model = models.find(({ id }) => id === settings.model);
  const last = lastId(conversation);
  return html`<main class="chat">
    <details class="history" open=${innerWidth > 800}>
      <summary>Conversations</summary>
      <${Conversations} list=${list} shown=${current} />
    </details>
    <section class="talk" aria-label="Conversation">
      <h1 class="hidden">Chat</h1>
      <div class="head">
        <${ModelField} models=${models} settings=${settings} />
        <${Settings} settings=${settings} />
      </div>
      <div class="messages" role="log" tabindex="0" aria-label="Messages" ref=${place} onScroll=${onScroll}>
        ${messages.length === 0 && html`<p class="empty">Messages stay in this browser.</p>`}
        ${messages.map((message) => html`<${Message} key=${`${current} ${message.id}`} message=${message} />`)}
      </div>
      ${notice && html`<p class="error" role="alert">${notice}</p>`}
      <${Composer}
        key=${current}
        model=${settings.model}
        takesImages=${Boolean(model?.input_modalities?.includes("image"))}
        answering=${last && actions.isRunning(last) ? last : null}
        onSend=${actions.send}
      />
    </section>
  </main>`;
}
