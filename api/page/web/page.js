// The page: navigation, API key and theme, and the two views.

import { html, render, useEffect, useState } from "./vendor/htm-preact-3.1.1.js";
import { apiKey } from "./api.js";
import { Chat } from "./chat.js";
import { loadChats } from "./chats.js";
import { watchFleet } from "./fleet.js";
import { Live } from "./live.js";
import { recall, remember, useObservable } from "./state.js";

const THEMES = ["auto", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");

function useTheme() {
  const [theme, setTheme] = useState(recall("theme", "auto"));
  const [system, setSystem] = useState(dark.matches);
  useEffect(() => {
    const changed = () => setSystem(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const choose = (next) => {
    document.documentElement.dataset.theme = next;
    remember("theme", next);
    setTheme(next);
  };
  return [theme, choose, `${theme} ${system}`];
}

function useView() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash === "#live" ? "live" : "chat";
}

function KeyField() {
  const key = useObservable(apiKey);
  const [typed, setTyped] = useState(key);
  const save = (event) => {
    event.preventDefault();
    if (typed.trim() !== apiKey.get()) apiKey.set(typed.trim());
  };
  return html`<form class="key" onSubmit=${save}>
    <label class="hidden" for="key">API key</label>
    <input
      id="key"
      type="password"
      autocomplete="off"
      placeholder="API key"
      value=${typed}
      onInput=${(event) => setTyped(event.target.value)}
      onBlur=${save}
    />
  </form>`;
}

function Page() {
  const view = useView();
  const [theme, choose, colours] = useTheme();
  const link = (name, label) => html`<a href=${`#${name}`} aria-current=${view === name ? "page" : undefined}>${label}</a>`;
  return html`<header>
      <b class="name">Vinoqueue</b>
      <nav aria-label="Views">${link("chat", "Chat")}${link("live", "Live")}</nav>
      <${KeyField} />
      <label class="theme">
        <span class="hidden">Colours</span>
        <select value=${theme} onChange=${(event) => choose(event.target.value)}>
          ${THEMES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
        </select>
      </label>
    </header>
    ${view === "live" ? html`<${Live} theme=${colours} />` : html`<${Chat} />`}`;
}

document.documentElement.dataset.theme = recall("theme", "auto");
watchFleet();
loadChats();
render(html`<${Page} />`, document.getElementById("page"));
