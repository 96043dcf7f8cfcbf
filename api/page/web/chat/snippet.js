// Copying to the clipboard: a button, and a dialog with a text to copy.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { copy } from "../clipboard.js";
import { Drawer } from "../drawer.js";
import { IconButton } from "../icons.js";

const COPIED_MS = 1500;

export function CopyButton({ text }) {
  const [copied, setCopied] = useState(null);
  const act = async () => {
    setCopied(await copy(text));
    setTimeout(() => setCopied(null), COPIED_MS);
  };
  const label = { true: "Copied", false: "The browser allows no copying here", null: "Copy" }[copied];
  return html`<${IconButton} icon=${{ true: "check", false: "close", null: "copy" }[copied]} label=${label} onClick=${act} />`;
}

export function Snippet({ text, close }) {
  const area = useRef(null);
  const [copied, setCopied] = useState(null);
  useEffect(() => {
    copy(text).then((done) => {
      setCopied(done);
      if (!done) area.current?.select();
    });
  }, [text]);
  const state = { true: "Copied to the clipboard.", false: "Select the text and copy it.", null: "" }[copied];
  return html`<${Drawer} title="Request" kind="centre" close=${close}>
    <textarea ref=${area} class="code" aria-label="Request" readonly rows="14" value=${text}></textarea>
    <span role="status">${state}</span>
  </${Drawer}>`;
}
