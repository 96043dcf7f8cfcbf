// The fleet view: hosts with their workers, models with their queues, and what happens to requests when a worker dies.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { useObservable } from "../state.js";
import { Announcer, Batches, Moves, Summary } from "./events.js";
import { fleet } from "./feed.js";
import { Hosts } from "./hosts.js";
import { Models } from "./models.js";

function Replicas({ replicas, own }) {
  return html`<section aria-label="API replicas">
    <h2>API replicas</h2>
    <ul class="replicas card">
      ${replicas.map(
        ({ id, address, streams, version }) => html`<li key=${id}>
          <b>${id}</b>${id === own ? " (this one)" : ""}
          <p class="facts"><span>${address}</span><span>${streams} open ${streams === 1 ? "response" : "responses"}</span><span>version ${version}</span></p>
        </li>`,
      )}
    </ul>
  </section>`;
}

function Unseen({ state, error }) {
  if (state === "connecting") return html`<p role="status">Connecting …</p>`;
  return html`<p class="error" role="alert">${error.message}</p>
    ${state === "refused" && html`<p>Enter a key with the scope <code>admin</code> in the side bar. <code>vinoqueue key create --scope admin</code> makes one.</p>`}`;
}

function Seen({ document, connected }) {
  const now = document.time;
  const stale = !connected || document.store !== "up";
  return html`
    ${stale && html`<p class="error" role="alert">${document.store === "up" ? "The connection is lost." : "The store does not respond."} This is the last known state.</p>`}
    ${(document.store_problems ?? []).map((problem) => html`<p class="error" role="alert">${problem}</p>`)}
    <${Announcer} workers=${document.workers} />
    <${Summary} document=${document} />
    <${Hosts} workers=${document.workers} nodes=${document.nodes ?? []} now=${now} />
    <${Moves} moves=${document.moves} />
    <${Models} models=${document.models} nodes=${document.nodes ?? []} />
    <${Batches} batches=${document.batches} now=${now} />
    <${Replicas} replicas=${document.replicas} own=${document.replica} />
  `;
}

export function FleetView({ opener }) {
  const { state, error, document } = useObservable(fleet);
  return html`<main class="view">
    <div class="bar">${opener}<h1>Fleet</h1></div>
    <div class="fleet" role="region" aria-label="The fleet now" tabindex="0">
      <div class="width">
        ${document === null ? html`<${Unseen} state=${state} error=${error} />` : html`<${Seen} document=${document} connected=${state === "open"} />`}
      </div>
    </div>
  </main>`;
}
