// A section of the desk: what it lists is read when it opens and after each change.

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { apiKey, request } from "../api.js";
import { useObservable } from "../state.js";

/** Sends a request, and returns the document of the response.
 * @param {string} path @param {{method?: string, body?: object}} [how] */
export const call = async (path, how) => (await request(path, how)).json();

/** @param {() => Promise<any>} read @returns {{found: any, error: string, act: (work: () => Promise<any>) => Promise<any>}}
 * `act` does a work, reads again, and shows its error. */
export function useListed(read, changes = []) {
  const key = useObservable(apiKey);
  const [state, setState] = useState({ found: null, error: "" });
  const load = () => read().then((found) => setState({ found, error: "" }), (error) => setState({ found: null, error: error.message }));
  useEffect(() => void load(), [key, ...changes]);
  const act = async (work) => {
    try {
      const done = await work();
      await load();
      return done;
    } catch (error) {
      setState((before) => ({ ...before, error: error.message }));
      return null;
    }
  };
  return { ...state, act };
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
