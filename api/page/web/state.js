// Observable values, and a hook that renders a component again when one changes.

import { useEffect, useState } from "./vendor/htm-preact-3.1.1.js";

export function observable(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useObservable(source) {
  const [value, set] = useState(source.get());
  useEffect(() => {
    set(source.get());
    return source.listen((next) => set(() => next));
  }, [source]);
  return value;
}

// What the browser keeps between visits. Private windows may refuse to.
export function remember(name, value) {
  try {
    localStorage.setItem(`vinoqueue.${name}`, JSON.stringify(value));
  } catch {
    // It lasts until the page is closed.
  }
}

export function recall(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`vinoqueue.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}
