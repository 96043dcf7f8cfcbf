// Formulas in LaTeX, as MathML. Temml is loaded when the first one is shown.

import { escaped } from "./escape.js";

const TEMML = new URL("../vendor/temml-0.13.5.js", import.meta.url);
const MAX = 4000;

// A limited length keeps a text with many opening signs cheap.
const BLOCKS = [/^ {0,3}\$\$([^$]{1,4000}?)\$\$[ \t]*(?:\n|$)/, /^ {0,3}\\\[([^]{1,4000}?)\\\][ \t]*(?:\n|$)/];
const INLINE = [
  { rule: /^\$\$([^$]{1,4000}?)\$\$/, block: true },
  { rule: /^\\\[([^]{1,4000}?)\\\]/, block: true },
  { rule: /^\\\(([^]{1,4000}?)\\\)/, block: false },
  // As Pandoc does it: prices are no formulas.
  { rule: /^\$(?![\s$])((?:\\.|[^\\$\n]){1,1000}?)(?<!\s)\$(?!\d)/, block: false },
];

// Only this module makes `samp` elements: raw HTML of models is shown as text.
const renderer = ({ text, block }) => `<samp title="${block ? "block" : "inline"}">${escaped(text.trim())}</samp>`;

/** Extensions of marked. */
export const extensions = [
  {
    name: "blockMath",
    level: "block",
    start: (text) => text.match(/\$\$|\\\[/)?.index,
    tokenizer(text) {
      const found = BLOCKS.map((rule) => rule.exec(text)).find(Boolean);
      return found && { type: "blockMath", raw: found[0], text: found[1], block: true };
    },
    renderer: (token) => `<p>${renderer(token)}</p>`,
  },
  {
    name: "inlineMath",
    level: "inline",
    start: (text) => text.match(/\$|\\[([]/)?.index,
    tokenizer(text) {
      for (const { rule, block } of INLINE) {
        const found = rule.exec(text);
        if (found) return { type: "inlineMath", raw: found[0], text: found[1], block };
      }
      return undefined;
    },
    renderer,
  },
];

let loading = null;

function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = TEMML;
    script.onload = () => resolve(globalThis.temml);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

function draw(place, temml) {
  const displayMode = place.title === "block";
  let mathml;
  try {
    mathml = temml.renderToString(place.textContent, { displayMode, throwOnError: true, trust: false, maxExpand: 100 });
  } catch {
    place.removeAttribute("title");
    return; // The source is shown.
  }
  place.replaceWith(
    // The policy of the page refuses styles in attributes, and reports each, even where they are removed.
    DOMPurify.sanitize(mathml.replace(/ style="[^"]*"/g, ""), {
      USE_PROFILES: { mathMl: true },
      FORBID_ATTR: ["style", "href", "class", "id"],
      RETURN_DOM_FRAGMENT: true,
    }),
  );
}

/** Draws the formulas of sanitized elements, now or when Temml is there. @param {DocumentFragment} fragment */
export function drawMath(fragment) {
  const places = [...fragment.querySelectorAll("samp")].filter(({ textContent }) => textContent.length <= MAX);
  if (!places.length) return;
  if (globalThis.temml) places.forEach((place) => draw(place, globalThis.temml));
  else load().then((temml) => places.forEach((place) => draw(place, temml)), console.warn);
}
