// The page: the side bar, and one of the views.

import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/htm-preact-3.1.1.js";
import { Chat } from "./chat/chat.js";
import { chats, loadChats, removeChat, startChat } from "./chat/chats.js";
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

// A view, or what to do where it fails.
function Guarded({ View, view, opener }) {
  const { current } = useObservable(chats);
  const [error, reset] = useErrorBoundary((failed) => console.error(failed));
  useEffect(() => error && reset(), [view, current]);
  if (!error) return html`<${View} opener=${opener} />`;
  return html`<main class="view">
    <div class="bar">${opener}</div>
    <p class="error" role="alert">This can't be shown: ${error.message}. Load the page again, or choose something else in the side bar.</p>
    ${view === "chat" &&
    html`<div class="actions">
      <button type="button" onClick=${startChat}>New conversation</button>
      <button type="button" class="quiet" onClick=${() => removeChat(current)}>Delete this conversation</button>
    </div>`}
  </main>`;
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
    <${Guarded} View=${View} view=${view} opener=${opener} />
    ${dialog === "shortcuts" && html`<${Shortcuts} />`}
  </div>`;
}

listenForKeys();
watchFleet();
loadChats();
render(html`<${Page} />`, document.getElementById("page"));
