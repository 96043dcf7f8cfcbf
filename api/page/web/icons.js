// Icons: outlines of 24 × 24, in the colour of the text.

import { html } from "./vendor/htm-preact-3.1.1.js";

const PATHS = {
  attach: "M20 11.5 12 19.5a5 5 0 0 1-7-7l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7L9.8 17a1.6 1.6 0 0 1-2.3-2.3l7.5-7.5",
  chat: "M4 5h16v11H10l-5 4v-4H4z",
  check: "m5 13 4.5 4.5L19 7",
  close: "m6 6 12 12M18 6 6 18",
  colours: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  delete: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13M10 11v5M14 11v5",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "m4 20 1-4.5L16 4.5l3.5 3.5L8.5 19zM14 6.5l3.5 3.5",
  export: "M12 15V4M7.5 8.5 12 4l4.5 4.5M4 15v5h16v-5",
  file: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  fleet: "M4 4h16v6H4zM4 14h16v6H4zM7.5 7h.01M7.5 17h.01M12 7h5M12 17h5",
  import: "M12 4v11M7.5 10.5 12 15l4.5-4.5M4 15v5h16v-5",
  key: "M8 11a4 4 0 1 0 .01 0M11 12.5l8-8M15.5 8l3 3",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  menu: "M4 6h16M4 12h16M4 18h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "m9 6 6 6-6 6",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  plus: "M12 5v14M5 12h14",
  previous: "m15 6-6 6 6 6",
  retry: "M19 12a7 7 0 1 1-2-5l3 3M20 4v6h-6",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M15.5 15.5 20 20",
  send: "M12 19V5M6 11l6-6 6 6",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5v5M8 14.5v5",
  stop: "M7 7h10v10H7z",
};

export function Icon({ name }) {
  return html`<svg class=${`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

// A button that shows an icon; `label` is its name, and its tooltip.
export function IconButton({ icon, label, ...rest }) {
  return html`<button type="button" class="icon-button" aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>`;
}
