// The side bar: views, conversations, API key and colours. On small screens it is a drawer.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { apiKey } from "./api.js";
import { startChat } from "./chat/chats.js";
import { Conversations } from "./chat/conversations.js";
import { Icon, IconButton } from "./icons.js";
import { chosen, isNarrow, openDialog, toggleSidebar } from "./layout.js";
import { useObservable } from "./state.js";
import { THEMES } from "./theme.js";

function KeyField() {
  const key = useObservable(apiKey);
  const [typed, setTyped] = useState(key);
  const save = (event) => {
    event.preventDefault();
    if (typed.trim() !== apiKey.get()) apiKey.set(typed.trim());
  };
  return html`<form class="key" onSubmit=${save}>
    <${Icon} name="key" />
    <input
      type="password"
      aria-label="API key"
      autocomplete="off"
      placeholder="API key"
      value=${typed}
      onInput=${(event) => setTyped(event.target.value)}
      onBlur=${save}
    />
  </form>`;
}

export function Sidebar({ view, open, theme: [theme, choose] }) {
  const place = useRef(null);
  useEffect(() => {
    if (open && isNarrow()) place.current.querySelector("a, button").focus();
  }, [open]);
  const link = (name, icon, label) => html`<a
    class="row"
    href=${`#${name}`}
    aria-current=${view === name ? "page" : undefined}
    onClick=${chosen}
  >
    <${Icon} name=${icon} /> ${label}
  </a>`;
  const start = () => {
    location.hash = "#chat";
    startChat();
    chosen();
  };
  const onKey = (event) => {
    if (event.key !== "Escape" || !isNarrow()) return;
    event.preventDefault();
    toggleSidebar(false);
  };
  return html`<aside class="sidebar" id="sidebar" ref=${place} hidden=${!open} onKeyDown=${onKey}>
    <div class="brand"><img src="web/icon.svg" alt="" width="24" height="24" /> <b>Vinoqueue</b></div>
    <nav aria-label="Views">${link("chat", "chat", "Chat")}${link("live", "fleet", "Fleet")}${link("desk", "key", "Desk")}</nav>
    <button type="button" class="row second" onClick=${start}><${Icon} name="plus" /> New conversation</button>
    <${Conversations} />
    <div class="foot">
      <${KeyField} />
      <div class="actions">
        <label class="colours">
          <${Icon} name="colours" />
          <select aria-label="Colours" value=${theme} onChange=${(event) => choose(event.target.value)}>
            ${Object.entries(THEMES).map(([one, label]) => html`<option key=${one} value=${one}>${label}</option>`)}
          </select>
        </label>
        <${IconButton} icon="keyboard" label="Keyboard shortcuts" onClick=${() => openDialog("shortcuts")} />
      </div>
    </div>
  </aside>`;
}
