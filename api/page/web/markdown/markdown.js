// Markdown of models, as elements. Everything a model writes is untrusted: raw HTML is shown as text, the rest passes
// DOMPurify with a short list of elements and attributes, and nothing in it loads from anywhere.

import { html, useEffect, useRef } from "../vendor/htm-preact-3.1.1.js";
import { Marked } from "../vendor/marked-18.2.1.js";

const PURIFIED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p",
    "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["align", "alt", "href", "src", "start", "title"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

// Beyond, a text is shown as it is: quotes and lists this deep come from no honest model and cost much time.
const MAX_DEPTH = 40;
const DEEP = new RegExp(String.raw`^[ \t]*(?:(?:>|[-+*]|\d+[.)])[ \t]*){${MAX_DEPTH}}`, "m");
const MAX_LENGTH = 200_000;

const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escaped(text)),
    // A remote image would tell its host who reads this, so it becomes a link.
    image({ href, text }) {
      if (PICTURE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
      return `<a href="${escaped(href)}">${escaped(text || href)}</a>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

function plain(text) {
  const block = document.createElement("pre");
  block.textContent = text;
  const fragment = document.createDocumentFragment();
  fragment.append(block);
  return fragment;
}

export function rendered(text) {
  if (text.length > MAX_LENGTH || DEEP.test(text)) return plain(text);
  let fragment;
  try {
    fragment = DOMPurify.sanitize(marked.parse(text), PURIFIED);
  } catch (error) {
    console.warn("shown as plain text:", error);
    return plain(text);
  }
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const image of fragment.querySelectorAll("img")) {
    if (!PICTURE.test(image.getAttribute("src") ?? "")) image.replaceWith(image.alt);
  }
  for (const block of fragment.querySelectorAll("pre, table")) block.tabIndex = 0;
  return fragment;
}

// Renders at most as often as leaves the browser nine tenths of its time.
export function Markdown({ text }) {
  const place = useRef(null);
  const state = useRef({ timer: 0, text: "", shown: null, cost: 0 });
  useEffect(() => {
    const now = state.current;
    now.text = text;
    if (now.timer) return;
    const draw = () => {
      now.timer = 0;
      if (!place.current || now.shown === now.text) return;
      const began = performance.now();
      place.current.replaceChildren(rendered(now.text));
      now.shown = now.text;
      now.cost = performance.now() - began;
      now.timer = setTimeout(draw, Math.max(30, 9 * now.cost));
    };
    draw();
  }, [text]);
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return html`<div class="markdown" ref=${place}></div>`;
}
