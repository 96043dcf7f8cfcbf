// One message of a conversation: its text, reasoning, tool calls and figures, and what can be done with it.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { size, seconds } from "../format.js";
import { Icon, IconButton } from "../icons.js";
import { Markdown } from "../markdown/markdown.js";
import { Menu } from "../menu.js";
import { branch, current, edit, isRunning, retry } from "./chats.js";
import { siblings } from "./conversation.js";
import { CopyButton, Snippet } from "./snippet.js";
import { asCurl, asPython } from "./snippets.js";

function Branches({ id }) {
  const all = siblings(current(), id);
  if (all.length < 2) return null;
  const at = all.indexOf(id);
  return html`<span class="branches">
    <${IconButton} icon="previous" label="Previous branch" disabled=${at === 0} onClick=${() => branch(all[at - 1])} />
    <span aria-label=${`Branch ${at + 1} of ${all.length}`} role="img">${at + 1}/${all.length}</span>
    <${IconButton} icon="next" label="Next branch" disabled=${at === all.length - 1} onClick=${() => branch(all[at + 1])} />
  </span>`;
}

function Waiting({ queue }) {
  if (!queue) return html`<p class="waiting" role="status">Waiting for the server …</p>`;
  if (queue.ahead === null) return html`<p class="waiting" role="status">A worker reads the prompt …</p>`;
  const place = queue.ahead === 0 ? "next in the queue" : `${queue.ahead} ahead in the queue`;
  const wait = queue.expected_wait === null ? "" : `, about ${seconds(queue.expected_wait)}`;
  return html`<p class="waiting" role="status">${place}${wait}</p>`;
}

function Figures({ message }) {
  const { stats = {}, finish, stopped, freed } = message;
  const parts = [message.model];
  if (stats.firstToken !== undefined) parts.push(`first token ${seconds(stats.firstToken)}`);
  if (stats.perSecond !== undefined) parts.push(`${stats.perSecond.toFixed(1)} tokens/s`);
  if (stats.tokens !== undefined) parts.push(`${stats.promptTokens} + ${stats.tokens} tokens`);
  if (finish === "length") parts.push("cut off at the maximum number of tokens");
  if (stopped) parts.push(freed === undefined ? "stopped" : `stopped, slot freed after ${seconds(freed)}`);
  return html`<p class="figures">${parts.join(" · ")}</p>`;
}

function Call({ call }) {
  return html`<div class="call"><span>Tool call</span> <code>${call.name}</code><pre tabindex="0">${call.arguments}</pre></div>`;
}

function Editor({ message, close }) {
  const [text, setText] = useState(message.text);
  const save = () => {
    close();
    edit(message.id, text);
  };
  return html`<form class="editor" onSubmit=${(event) => (event.preventDefault(), save())}>
    <textarea aria-label="Edit the message" rows="4" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    <div class="actions">
      <button type="submit">Send as a new branch</button>
      <button type="button" class="quiet" onClick=${close}>Cancel</button>
    </div>
  </form>`;
}

function UserMessage({ message }) {
  const [editing, setEditing] = useState(false);
  if (editing) return html`<${Editor} message=${message} close=${() => setEditing(false)} />`;
  return html`<div class="said">
      ${message.images?.map((url, at) => html`<img key=${at} src=${url} alt=${`Image ${at + 1}`} />`)}
      ${message.files?.map(
        ({ name, text }, at) => html`<details key=${at} class="file"><summary><${Icon} name="file" /> ${name} <small>${size(text.length)}</small></summary><pre tabindex="0">${text}</pre></details>`,
      )}
      ${message.text && html`<div class="plain">${message.text}</div>`}
    </div>
    <div class="actions">
      <${Branches} id=${message.id} />
      <${IconButton} icon="edit" label="Edit" onClick=${() => setEditing(true)} />
      <${CopyButton} text=${message.text} />
    </div>`;
}

function Answer({ message }) {
  const [snippet, setSnippet] = useState(null);
  const live = isRunning(message.id);
  const empty = !message.text && !message.reasoning && !message.calls?.length;
  return html`
    ${message.reasoning &&
    html`<details class="reasoning"><summary>Reasoning</summary><${Markdown} text=${message.reasoning} /></details>`}
    ${message.text && html`<${Markdown} text=${message.text} />`}
    ${message.calls?.map((call, at) => html`<${Call} key=${at} call=${call} />`)}
    ${live && empty && html`<${Waiting} queue=${message.queue} />`}
    ${message.error && html`<p class="error" role="alert">${message.error}</p>`}
    <${Figures} message=${message} />
    ${!live &&
    html`<div class="actions">
      <${Branches} id=${message.id} />
      <${CopyButton} text=${message.text} />
      <${IconButton} icon="retry" label="Regenerate" onClick=${() => retry(message.id)} />
      <${Menu}
        label="More"
        items=${[
          { icon: "copy", label: "Copy as curl", act: () => setSnippet(asCurl(message.body)) },
          { icon: "copy", label: "Copy as Python", act: () => setSnippet(asPython(message.body)) },
        ]}
      />
    </div>`}
    ${snippet && html`<${Snippet} text=${snippet} close=${() => setSnippet(null)} />`}
  `;
}

export function Message({ message }) {
  const mine = message.role === "user";
  return html`<article class=${`message ${message.role}`} aria-label=${mine ? "You" : "Model"} aria-busy=${isRunning(message.id)}>
    ${mine ? html`<${UserMessage} message=${message} />` : html`<${Answer} message=${message} />`}
  </article>`;
}
