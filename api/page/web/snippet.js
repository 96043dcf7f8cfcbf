// A dialog with a text to copy, and copying to the clipboard.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";

// The clipboard needs HTTPS or a loopback address.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function Snippet({ text, close }) {
  const dialog = useRef(null);
  const area = useRef(null);
  const [copied, setCopied] = useState(null);
  useEffect(() => {
    dialog.current.showModal();
    copy(text).then((done) => {
      setCopied(done);
      if (!done) area.current?.select();
    });
  }, [text]);
  const state = { true: "Copied to the clipboard.", false: "Select the text and copy it.", null: "" }[copied];
  return html`<dialog ref=${dialog} aria-label="Request" onClose=${close}>
    <textarea ref=${area} aria-label="Request" readonly rows="14" value=${text}></textarea>
    <div class="actions">
      <span role="status">${state}</span>
      <button onClick=${() => dialog.current.close()}>Close</button>
    </div>
  </dialog>`;
}
