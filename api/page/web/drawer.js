// Modal dialogs, as drawers at the right or in the middle. The browser keeps the focus inside and closes them at Escape.

import { html, useEffect, useRef } from "./vendor/htm-preact-3.1.1.js";
import { IconButton } from "./icons.js";

/** @param {{title: string, kind?: "drawer" | "centre", close: () => void, children: any}} props */
export function Drawer({ title, kind = "drawer", close, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const outside = (event) => event.target === dialog.current && dialog.current.close();
  return html`<dialog ref=${dialog} class=${kind} aria-label=${title} onClose=${close} onClick=${outside}>
    <div class="sheet">
      <div class="sheet-head">
        <h2>${title}</h2>
        <${IconButton} icon="close" label="Close" onClick=${() => dialog.current.close()} />
      </div>
      ${children}
    </div>
  </dialog>`;
}
