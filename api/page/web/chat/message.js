// One message of a conversation, and what can be done with it.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { size } from "../format.js";
import { Icon, IconButton } from "../icons.js";
import { Markdown } from "../markdown/markdown.js";
import { Menu } from "../menu.js";
import { sends } from "../shortcuts.js";
import { branch, current, edit, retry } from "./chats.js";
import { Figures, Waiting } from "./progress.js";
import { requestBody } from "./request.js";
import { CopyButton, Snippet } from "./snippet.js";
import { asCurl, asPython } from "./snippets.js";

function Branches({ id, all }) {
  if (all.length < 2) return null;
  const at = all.indexOf(id);
  return html`<span class="branches">
    <${IconButton} icon="previous" label="Previous branch" disabled=${at === 0} onClick=${() => branch(all[at - 1])} />
    <span aria-label=${`Branch ${at + 1} of ${all.length}`} role="img">${at + 1}/${all.length}</span>
    <${IconButton} icon="next" label="Next branch" disabled=${at === all.length - 1} onClick=${() => branch(all[at + 1])} />
  </span>`;
}

// Indented, if the arguments are complete.
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Call({ call }) {
  return html`<div class="call"><span>Tool call</span> <code>${call.name}</code><pre tabindex="0">${readable(call.arguments)}</pre></div>`;
}

function Editor({ message, close }) {
  const [text, setText] = useState(message.text);
  const field = useRef(null);
  useEffect(() => {
    field.current.focus({ preventScroll: true });
    field.current.scrollIntoView({ block: "nearest" });
  }, []);
  const save = (event) => {
    event.preventDefault();
    close();
    edit(message.id, text);
  };
  const onKey = (event) => {
    if (event.key === "Escape") close();
    else if (sends(event)) save(event);
    else return;
    event.preventDefault();
  };
  return html`<form class="editor" onSubmit=${save}>
    <textarea
      aria-label="Edit the message"
      rows="4"
      ref=${field}
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKey}
    ></textarea>
    <div class="actions">
      <button type="submit">Send as a new branch</button>
      <button type="button" class="quiet" onClick=${close}>Cancel</button>
    </div>
  </form>`;
}

const LONG = 1500;

// A long text is folded.
function Said({ text }) {
  const [open, setOpen] = useState(text.length < LONG && text.split("\n").length < 20);
  return html`<div class=${open ? "plain" : "plain folded"}>${text}</div>
    ${!open && html`<button type="button" class="quiet unfold" onClick=${() => setOpen(true)}>Show all</button>`}`;
}

function UserMessage({ message, all }) {
  const [editing, setEditing] = useState(false);
  if (editing) return html`<${Editor} message=${message} close=${() => setEditing(false)} />`;
  return html`<div class="said">
      ${message.images?.map((url, at) => html`<img key=${at} src=${url} alt=${`Image ${at + 1}`} />`)}
      ${message.files?.map(
        ({ name, text }, at) => html`<details key=${at} class="file"><summary><${Icon} name="file" /> ${name} <small>${size(text.length)}</small></summary><pre tabindex="0">${text}</pre></details>`,
      )}
      ${message.text && html`<${Said} text=${message.text} />`}
    </div>
    <div class="actions">
      <${Branches} id=${message.id} all=${all} />
      <${IconButton} icon="edit" label="Edit" onClick=${() => setEditing(true)} />
      <${CopyButton} text=${message.text} />
    </div>`;
}

function Reasoning({ message, live, whole }) {
  const { reasoning, stats } = message;
  const took = stats?.reasoning === undefined ? "" : ` for ${Math.round(stats.reasoning)} s`;
  return html`<details class="reasoning">
    <summary>${live && !message.text ? "Reasoning …" : `Reasoning${took}`}</summary>
    <div><${Markdown} text=${reasoning} whole=${whole} /></div>
  </details>`;
}

function Answer({ message, live, all }) {
  const [snippet, setSnippet] = useState(null);
  const body = () => requestBody(current(), message.parent, message.settings);
  const whole = !live || message.finish !== undefined;
  const empty = !message.text && !message.reasoning && !message.calls?.length;
  return html`
    ${message.reasoning && html`<${Reasoning} message=${message} live=${live} whole=${whole} />`}
    ${message.text && html`<${Markdown} text=${message.text} whole=${whole} />`}
    ${message.calls?.map((call, at) => html`<${Call} key=${at} call=${call} />`)}
    ${live && empty && html`<${Waiting} queue=${message.queue} />`}
    ${message.error && html`<p class="error" role="alert">${message.error}</p>`}
    <${Figures} message=${message} />
    ${!live &&
    html`<div class="actions">
      <${Branches} id=${message.id} all=${all} />
      <${CopyButton} text=${message.text} />
      <${IconButton} icon="retry" label="Regenerate" onClick=${() => retry(message.id)} />
      <${Menu}
        label="More"
        items=${[
          { icon: "copy", label: "Copy as curl", act: () => setSnippet(asCurl(body())) },
          { icon: "copy", label: "Copy as Python", act: () => setSnippet(asPython(body())) },
        ]}
      />
    </div>`}
    ${snippet && html`<${Snippet} text=${snippet} close=${() => setSnippet(null)} />`}
  `;
}

/** @param {{message: object, live: boolean, all: string[]}} props `live` is whether it grows, `all` the branches that it
 * is one of. Drawn again only when one of these has changed: a conversation may have many messages. */
export function Message({ message, live, all }) {
  return useMemo(() => {
    const mine = message.role === "user";
    return html`<article class=${`message ${message.role}`} aria-label=${mine ? "You" : "Model"} aria-busy=${live}>
      ${mine ? html`<${UserMessage} message=${message} all=${all} />` : html`<${Answer} message=${message} live=${live} all=${all} />`}
    </article>`;
  }, [message, live, all.join()]);
}
