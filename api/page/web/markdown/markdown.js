// A text in Markdown that may grow. Only the blocks that have changed are drawn again.

import { html, useEffect, useLayoutEffect, useRef } from "../vendor/htm-preact-3.1.1.js";
import { blocks } from "./render.js";

/** Draws `text` in `place`, whose children are the blocks `before`. Returns the keys of the blocks.
 * @param {Element} place @param {string[]} before @param {string} text */
export function update(place, before, text) {
  const found = blocks(text);
  found.forEach(({ key, draw }, at) => {
    if (before[at] === key) return;
    const box = document.createElement("div");
    box.append(draw());
    if (at < place.children.length) place.children[at].replaceWith(box);
    else place.append(box);
  });
  while (place.children.length > found.length) place.lastElementChild.remove();
  return found.map(({ key }) => key);
}

/** A text that is `whole` is drawn at once, with what is shown beside it; one that grows at most as often as leaves the
 * browser nine tenths of its time.
 * @param {{text: string, whole: boolean}} props */
export function Markdown({ text, whole }) {
  const place = useRef(null);
  const state = useRef({ timer: 0, text: "", shown: null, keys: [] });
  useLayoutEffect(() => {
    const now = state.current;
    now.text = text;
    if (now.timer && !whole) return;
    const draw = () => {
      clearTimeout(now.timer);
      now.timer = 0;
      if (!place.current || now.shown === now.text) return;
      const began = performance.now();
      now.keys = update(place.current, now.keys, now.text);
      now.shown = now.text;
      now.timer = setTimeout(draw, Math.max(30, 9 * (performance.now() - began)));
    };
    draw();
  }, [text, whole]);
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return html`<div class="markdown" ref=${place}></div>`;
}
