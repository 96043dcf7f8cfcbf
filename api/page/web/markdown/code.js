// Blocks of code, with the name of the language, a button that copies, and colours. The highlighter is loaded when the
// first block is shown.

import { copy } from "../clipboard.js";

const MAX_LENGTH = 50_000;
const COPIED_MS = 1500;
const COLOURED = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], ALLOW_DATA_ATTR: false, RETURN_DOM_FRAGMENT: true };

let highlighter = null;

async function load() {
  highlighter ??= (await import("../vendor/highlight-11.12.0.js")).default;
}

function colour(code, language) {
  const text = code.textContent;
  if (!highlighter?.getLanguage(language) || text.length > MAX_LENGTH) return;
  const { value } = highlighter.highlight(text, { language, ignoreIllegals: true });
  code.replaceChildren(DOMPurify.sanitize(value, COLOURED));
}

function copier(code) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Copy code";
  button.addEventListener("click", async () => {
    const copied = await copy(code.textContent);
    if (!copied) getSelection().selectAllChildren(code);
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => (button.textContent = "Copy code"), COPIED_MS);
  });
  return button;
}

/** Gives the blocks of sanitized elements their heads and colours; the language is in `title`.
 * @param {DocumentFragment} fragment */
export function drawCode(fragment) {
  for (const block of fragment.querySelectorAll("pre")) {
    const code = block.firstElementChild ?? block;
    const language = block.title;
    block.removeAttribute("title");
    block.tabIndex = 0;
    const frame = document.createElement("div");
    frame.className = "code-block";
    const head = document.createElement("div");
    head.className = "code-head";
    const name = document.createElement("span");
    name.textContent = language;
    head.append(name, copier(code));
    block.replaceWith(frame);
    frame.append(head, block);
    if (!language) continue;
    if (highlighter) colour(code, language);
    else load().then(() => colour(code, language), console.warn);
  }
}
