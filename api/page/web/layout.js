// What is open beside the shown view, and which view that is.

import { useEffect, useState } from "./vendor/htm-preact-3.1.1.js";
import { observable, recall, remember } from "./state.js";

const narrow = matchMedia("(max-width: 800px)");

// {sidebar: whether it is open; dialog: "settings", "shortcuts" or ""}
export const layout = observable({ sidebar: !narrow.matches && recall("sidebar", true), dialog: "" });

export function toggleSidebar(open = !layout.get().sidebar) {
  layout.set({ ...layout.get(), sidebar: open });
  if (!narrow.matches) remember("sidebar", open);
}

// On a small screen the side bar covers what was chosen in it.
export const chosen = () => narrow.matches && toggleSidebar(false);

export const openDialog = (dialog) => layout.set({ ...layout.get(), dialog });

export const isNarrow = () => narrow.matches;

narrow.addEventListener("change", () => toggleSidebar(!narrow.matches && recall("sidebar", true)));

const VIEWS = ["chat", "live", "desk"];

const named = () => VIEWS.find((view) => location.hash === `#${view}`) ?? VIEWS[0];

export function useView() {
  const [view, setView] = useState(named());
  useEffect(() => {
    const changed = () => setView(named());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return view;
}
