// The page: the side bar, and one of the views.

import { html, render, useEffect, useState } from "./vendor/htm-preact-3.1.1.js";
import { Chat } from "./chat/chat.js";
import { loadChats } from "./chat/chats.js";
import { watchFleet } from "./fleet/feed.js";
import { IconButton } from "./icons.js";
import { layout, toggleSidebar, useView } from "./layout.js";
import { Shortcuts, listenForKeys } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { useObservable } from "./state.js";
import { useTheme } from "./theme.js";

// The modules of the other views are loaded when they are opened.
const OTHERS = {
  live: async () => (await import("./fleet/view.js")).FleetView,
  desk: async () => (await import("./desk/view.js")).Desk,
};

const Loading = ({ opener }) => html`<main class="view"><div class="bar faint">${opener} Loading …</div></main>`;

const Failed = ({ opener }) => html`<main class="view">
  <div class="bar">${opener}</div>
  <p class="error" role="alert">The server can't be reached. Load the page again.</p>
</main>`;

function useLoaded(view) {
  const [views, setViews] = useState({ chat: Chat });
  useEffect(() => {
    if (!views[view]) OTHERS[view]().catch(() => Failed).then((loaded) => setViews((before) => ({ ...before, [view]: loaded })));
  }, [view]);
  return views[view] ?? Loading;
}

function Page() {
  const view = useView();
  const { sidebar, dialog } = useObservable(layout);
  const theme = useTheme();
  const View = useLoaded(view);
  const opener = html`<${IconButton}
    icon="menu"
    label=${sidebar ? "Close the side bar" : "Open the side bar"}
    aria-expanded=${sidebar}
    aria-controls="sidebar"
    onClick=${() => toggleSidebar()}
  />`;
  return html`<div class="shell" data-sidebar=${sidebar ? "open" : "closed"}>
    <${Sidebar} view=${view} open=${sidebar} theme=${theme} />
    <div class="backdrop" onClick=${() => toggleSidebar(false)}></div>
    <${View} opener=${opener} />
    ${dialog === "shortcuts" && html`<${Shortcuts} />`}
  </div>`;
}

listenForKeys();
watchFleet();
loadChats();
render(html`<${Page} />`, document.getElementById("page"));
