// A section of the desk: what it lists is read when it opens and after each change.

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { apiKey, request } from "../api.js";
import { observable, useObservable } from "../state.js";

// Counts actions that succeeded, for sections that show what they changed.
export const actions = observable(0);

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
      actions.set(actions.get() + 1);
      return done;
    } catch (failure) {
      setError(failure.message);
      return null;
    }
  };
  return { error, setError, act };
}

/** A list in OpenAI's form, a page at a time.
 * @param {string} path @param {any[]} [changes] after which it is read again
 * @returns {{found: any, error: string, act: (action: () => Promise<any>) => Promise<any>, more: (() => void) | null}}
 * `act` is as in `useAction`, and reads again. `more` appends the next page, and is null after the last. */
export function useListed(path, changes = []) {
  const key = useObservable(apiKey);
  const [found, setFound] = useState(null);
  const { error, setError, act } = useAction(() => load());
  const load = async (before = null) => {
    try {
      const page = await call(before ? `${path}&after=${encodeURIComponent(before.last_id)}` : path);
      setFound((now) => (!before ? page : now === before ? { ...page, data: [...before.data, ...page.data] } : now));
      setError("");
    } catch (failure) {
      if (!before) setFound(null);
      setError(failure.message);
    }
  };
  useEffect(() => void load(), [key, path, ...changes]);
  return { found, error, act, more: found?.has_more ? () => load(found) : null };
}

/** @param {{title: string, error: string, aside?: any, children: any}} props `aside` stands beside the title. */
export function Section({ title, error, aside, children }) {
  return html`<section aria-label=${title}>
    <div class="section-head"><h2>${title}</h2>${aside}</div>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${children}
  </section>`;
}

/** A table; on small screens, each row is a card.
 * @param {{label: string, heads: string[], rows: {key: string, cells: any[]}[], more?: (() => void) | null}} props the
 *   first cell names its row; `more` shows further rows */
export function Table({ label, heads, rows, more }) {
  return html`<div class="wide card" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${heads.map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          ({ key, cells: [first, ...rest] }) => html`<tr key=${key}>
            <th scope="row">${first}</th>
            ${rest.map((cell, at) => html`<td key=${at} data-head=${heads[at + 1]}>${cell}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
    ${more && html`<${RowButton} verb="More" of=${`in the ${label}`} act=${more} />`}
  </div>`;
}

/** A button in a row of a table, whose name says which row it is for.
 * @param {{verb: string, of: string, act: () => void, danger?: boolean}} props */
export function RowButton({ verb, of, act, danger = false }) {
  return html`<button type="button" class=${danger ? "second danger" : "second"} aria-label=${`${verb} ${of}`} onClick=${act}>${verb}</button>`;
}
