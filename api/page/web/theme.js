// Light and dark: the system's choice, or the user's.

import { useEffect, useState } from "./vendor/htm-preact-3.1.1.js";
import { recall, remember } from "./state.js";

export const THEMES = ["auto", "light", "dark"];

const dark = matchMedia("(prefers-color-scheme: dark)");

document.documentElement.dataset.theme = recall("theme", "auto");

/** @returns {[string, (theme: string) => void, string]} the theme, its setter, and what changes with the colours */
export function useTheme() {
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
