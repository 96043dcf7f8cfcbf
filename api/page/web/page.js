// The page: the side bar, and one of the views.

import { html, render } from "./vendor/htm-preact-3.1.1.js";
import { Chat } from "./chat/chat.js";
import { loadChats } from "./chat/chats.js";
import { Desk } from "./desk/view.js";
import { watchFleet } from "./fleet/feed.js";
import { FleetView } from "./fleet/view.js";
import { IconButton } from "./icons.js";
import { layout, toggleSidebar, useView } from "./layout.js";
import { Shortcuts, listenForKeys } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { useObservable } from "./state.js";
import { useTheme } from "./theme.js";

const VIEWS = { chat: Chat, live: FleetView, desk: Desk };

function Page() {
  const view = useView();
  const { sidebar, dialog } = useObservable(layout);
  const theme = useTheme();
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
    <${VIEWS[view]} opener=${opener} />
    ${dialog === "shortcuts" && html`<${Shortcuts} />`}
  </div>`;
}

listenForKeys();
watchFleet();
loadChats();
render(html`<${Page} />`, document.getElementById("page"));
