// The composer: the message's text, and the images and files that go with it.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { size } from "../format.js";
import { Icon, IconButton } from "../icons.js";
import { sends } from "../shortcuts.js";
import { read } from "./attachments.js";
import * as actions from "./chats.js";

const MAX_ROWS = 12;

function Attached({ images, files, drop }) {
  if (!images.length && !files.length) return null;
  return html`<ul class="attached">
    ${images.map(
      (url, at) => html`<li key=${`image ${at}`}>
        <img src=${url} alt=${`Image ${at + 1} to send`} />
        <${IconButton} icon="close" label=${`Remove image ${at + 1}`} onClick=${() => drop("images", at)} />
      </li>`,
    )}
    ${files.map(
      ({ name, text }, at) => html`<li key=${`file ${at}`} class="file">
        <${Icon} name="file" /> <span>${name} <small>${size(text.length)}</small></span>
        <${IconButton} icon="close" label=${`Remove ${name}`} onClick=${() => drop("files", at)} />
      </li>`,
    )}
  </ul>`;
}

/** @param {{draft: string, model: string, takesImages: boolean, answering: string | null,
 *   onSend: (text: string, images: string[], files: {name: string, text: string}[]) => boolean}} props
 * `draft` is the name under which the browser keeps the text, `answering` the answer that can be stopped. */
export function Composer({ draft, model, takesImages, answering, onSend }) {
  const [text, setText] = useState(() => actions.draftOf(draft));
  const [attached, setAttached] = useState({ images: [], files: [] });
  const [over, setOver] = useState(false);
  const picker = useRef(null);
  const field = useRef(null);
  useEffect(() => actions.keepDraft(draft, text), [draft, text]);
  useEffect(() => field.current.focus({ preventScroll: true }), []);

  const empty = !(text.trim() || attached.images.length || attached.files.length);

  async function add(list) {
    const found = await Promise.all([...list].map((file) => read(file, model, takesImages)));
    const of = (kind) => found.map((one) => one[kind]).filter(Boolean);
    setAttached(({ images, files }) => ({ images: [...images, ...of("image")], files: [...files, ...of("file")] }));
    actions.notify(of("refused").join(" "));
  }

  const drop = (kind, at) => setAttached({ ...attached, [kind]: attached[kind].filter((_, other) => other !== at) });

  function submit(event) {
    event?.preventDefault();
    const { images, files } = attached;
    if (answering || empty) return;
    if (!onSend(text, images, files)) return;
    setText("");
    setAttached({ images: [], files: [] });
  }

  const onKey = (event) => {
    if (sends(event)) submit(event);
  };
  const onPaste = (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add(event.clipboardData.files);
  };
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    add(event.dataTransfer.files);
  };
  const onPick = ({ target }) => {
    add(target.files);
    target.value = "";
  };
  const adding = takesImages ? "Add images or text files" : "Add text files";

  return html`<form
    class=${`composer ${over ? "over" : ""}`}
    aria-label="Composer"
    onSubmit=${submit}
    onDragOver=${(event) => (event.preventDefault(), setOver(true))}
    onDragLeave=${() => setOver(false)}
    onDrop=${onDrop}
  >
    <${Attached} ...${attached} drop=${drop} />
    <div class="line">
      <${IconButton} icon="attach" label=${adding} onClick=${() => picker.current.click()} />
      <input ref=${picker} type="file" hidden multiple aria-label="Files to attach" onChange=${onPick} />
      <textarea
        ref=${field}
        aria-label="Message"
        rows=${Math.min(MAX_ROWS, text.split("\n").length)}
        placeholder=${`Message ${model}`}
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${onKey}
        onPaste=${onPaste}
      ></textarea>
      ${answering
        ? html`<${IconButton} icon="stop" label="Stop" class="icon-button main stop" onClick=${() => actions.stop(answering)} />`
        : html`<button type="submit" class="icon-button main" disabled=${empty} aria-label="Send" title="Send"><${Icon} name="send" /></button>`}
    </div>
  </form>`;
}
