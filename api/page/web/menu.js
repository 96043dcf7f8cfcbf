// A button that opens a menu. The browser closes it at Escape and at a click elsewhere.

import { html, useRef } from "./vendor/htm-preact-3.1.1.js";
import { Icon, IconButton } from "./icons.js";

const GAP = 4;

function place(menu, button) {
  const { left, top, bottom } = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = menu;
  menu.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
  const below = bottom + GAP + height <= innerHeight;
  menu.style.top = `${below ? bottom + GAP : Math.max(GAP, top - height - GAP)}px`;
}

/** @param {{label: string, icon?: string, items: {icon: string, label: string, act: () => void}[]}} props */
export function Menu({ label, icon = "more", items }) {
  const menu = useRef(null);
  const button = useRef(null);
  const toggled = ({ newState }) => {
    if (!button.current) return; // closed because it went away
    button.current.setAttribute("aria-expanded", newState === "open");
    if (newState !== "open") return;
    place(menu.current, button.current);
    menu.current.querySelector("button").focus();
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...menu.current.querySelectorAll("button")];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  };
  const chosen = (act) => {
    menu.current.hidePopover();
    button.current.focus();
    act();
  };
  return html`<span ref=${(span) => (button.current = span?.firstElementChild)}>
    <${IconButton} icon=${icon} label=${label} aria-haspopup="menu" aria-expanded="false" onClick=${() => menu.current.togglePopover()} />
    <div ref=${menu} class="menu" popover="auto" role="menu" aria-label=${label} onToggle=${toggled} onKeyDown=${onKey}>
      ${items.map(
        ({ icon: name, label: text, act }) => html`<button key=${text} type="button" role="menuitem" onClick=${() => chosen(act)}>
          <${Icon} name=${name} /> ${text}
        </button>`,
      )}
    </div>
  </span>`;
}
