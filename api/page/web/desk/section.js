// A section of the desk: what it lists is read when it opens and after each change.

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { apiKey, request } from "../api.js";
import { useObservable } from "../state.js";

/** Sends a request, and returns the document of the response.
 * @param {string} path @param {{method?: string, body?: object}} [how] */
export const call = async (path, how) => (await request(path, how)).json();

/** @param {() => Promise<void>} [then] follows each action that succeeds
 * @returns {{error: string, setError: (error: string) => void, act: (action: () => Promise<any>) => Promise<any>}}
 * `act` returns what the action does, or shows its error and returns null. */
export function useAction(then) {
  const [error, setError] = useState("");
  const act = async (action) => {
    try {
      const done = await action();
      setError("");
      await then?.();
      return done;
    } catch (failure) {
      setError(failure.message);
      return null;
    }
  };
  return { error, setError, act };
}

/** @param {() => Promise<any>} read @returns {{found: any, error: string, act: (action: () => Promise<any>) => Promise<any>}}
 * `act` is as in `useAction`, and reads again. */
export function useListed(read, changes = []) {
  const key = useObservable(apiKey);
  const [found, setFound] = useState(null);
  const { error, setError, act } = useAction(() => load());
  const load = () =>
    read().then(
      (now) => (setFound(now), setError("")),
      (failure) => (setFound(null), setError(failure.message)),
    );
  useEffect(() => void load(), [key, ...changes]);
  return { found, error, act };
}

export function Section({ title, error, children }) {
  return html`<section aria-label=${title}>
    <h2>${title}</h2>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${children}
  </section>`;
}

/** @param {{label: string, heads: string[], rows: any[]}} props */
export function Table({ label, heads, rows }) {
  return html`<div class="wide card" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${heads.map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
      <tbody>${rows}</tbody>
    </table>
  </div>`;
}
