// Markdown of models, as elements. Everything a model writes is untrusted: raw HTML is shown as text, the rest passes
// DOMPurify with a short list of elements and attributes, and nothing in it loads from anywhere.

import { Marked } from "../vendor/marked-18.2.1.js";
import { drawCode } from "./code.js";
import { escaped } from "./escape.js";
import { drawMath, extensions } from "./math.js";

const PURIFIED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p",
    "pre", "samp", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
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

const marked = new Marked({
  gfm: true,
  breaks: true,
  extensions,
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escaped(text)),
    code: ({ text, lang }) => `<pre title="${escaped(lang?.match(/^[\w+#-]+/)?.[0] ?? "")}"><code>${escaped(text)}</code></pre>`,
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
  block.tabIndex = 0;
  const fragment = document.createDocumentFragment();
  fragment.append(block);
  return fragment;
}

function drawn(token) {
  const fragment = DOMPurify.sanitize(marked.parser([token]), PURIFIED);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const image of fragment.querySelectorAll("img")) {
    if (!PICTURE.test(image.getAttribute("src") ?? "")) image.replaceWith(image.alt);
  }
  for (const table of fragment.querySelectorAll("table")) table.tabIndex = 0;
  drawCode(fragment);
  drawMath(fragment);
  return fragment;
}

/** Returns the blocks of a text, such as paragraphs: each with a key that changes with what `draw` returns.
 * @param {string} text @returns {{key: string, draw: () => DocumentFragment}[]} */
export function blocks(text) {
  if (text.length > MAX_LENGTH || DEEP.test(text)) return [{ key: text, draw: () => plain(text) }];
  try {
    const tokens = marked.lexer(text);
    // A reference at the end of the text changes the links before it.
    const links = Object.keys(tokens.links).join();
    return tokens
      .filter(({ type }) => type !== "space" && type !== "def")
      .map((token) => ({ key: `${links}\n${token.raw}`, draw: () => drawn(token) }));
  } catch (error) {
    console.warn("shown as plain text:", error);
    return [{ key: text, draw: () => plain(text) }];
  }
}
