// Light and dark: the system's choice, or the user's, which early.js applies first.

import { useState } from "./vendor/htm-preact-3.1.1.js";
import { recall, remember } from "./state.js";

export const THEMES = { auto: "As the system", light: "Light", dark: "Dark" };

/** @returns {[string, (theme: string) => void]} */
export function useTheme() {
  const [theme, setTheme] = useState(recall("theme", "auto"));
  const choose = (next) => {
    document.documentElement.dataset.theme = next;
    remember("theme", next);
    setTheme(next);
  };
  return [theme, choose];
}
