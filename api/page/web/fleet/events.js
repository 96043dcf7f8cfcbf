// What happens in the fleet: a summary in words, moved requests, batches, and news for screen readers.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { loadState, seconds } from "../format.js";

const RECENT_SECONDS = 20;
const SHORT = 8;

const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const total = (models, field) => models.reduce((sum, { tiers }) => sum + tiers.reduce((all, tier) => all + tier[field], 0), 0);

/** Returns what somebody who sees the fleet for the first time needs to know. @param {object} document */
function summary({ models, workers, nodes = [], moves, time }) {
  const serving = workers.filter(({ status }) => status === "serving");
  const lost = workers.filter(({ status, last_heartbeat: beat }) => ["silent", "gone"].includes(status) && time - beat < RECENT_SECONDS);
  const recent = moves.filter((move) => time - move.time < RECENT_SECONDS);
  const moved = new Set(recent.filter(({ to }) => to !== null).map(({ request }) => request)).size;
  const back = recent.filter(({ to }) => to === null).length;
  const held = lost.reduce((sum, { running }) => sum + running.length, 0);
  const running = total(models, "running");
  const unloaded = total(models.filter(({ state }) => loadState(state)), "waiting");
  const waiting = total(models, "waiting") - unloaded;
  const says = [];
  if (lost.length) {
    const one = lost.length === 1;
    says.push(`${lost.map(({ id }) => id).join(", ")} no longer ${one ? "responds" : "respond"}.`);
    const [whose, ended] = one ? ["Its", "its lease has ended"] : ["Their", "their leases have ended"];
    if (held) says.push(`${whose} ${count(held, "request")} will go on at the next token on other workers, as soon as ${ended}.`);
  }
  if (moved) says.push(`${count(moved, "request")} moved to another worker and went on there; ${moved === 1 ? "its client" : "their clients"} saw a pause.`);
  if (back) says.push(`${count(back, "request")} went back to the front of the queue, to go on when a slot is free.`);
  if (unloaded) says.push(unloaded === 1 ? "1 request waits for its model to be loaded." : `${unloaded} requests wait for their models to be loaded.`);
  if (waiting && !serving.length) says.push(`${count(waiting, "request")} ${waiting === 1 ? "waits" : "wait"} for a worker.`);
  else if (running || waiting) says.push(`${count(running, "request")} ${running === 1 ? "runs" : "run"}${waiting ? `, and ${waiting} ${waiting === 1 ? "waits" : "wait"} for a free slot` : "; none waits"}.`);
  else if (!serving.length && !unloaded) says.push(nodes.length ? "All is quiet: no model is loaded." : "No worker is ready.");
  else if (!unloaded) says.push(`All is quiet: ${count(serving.length, "worker")} ${serving.length === 1 ? "is" : "are"} ready.`);
  return [says.join(" "), lost.length > 0];
}

function Total({ name, value, of }) {
  return html`<div><dt>${name}</dt><dd>${value}${of !== undefined && html`<small> of ${of}</small>`}</dd></div>`;
}

export function Summary({ document }) {
  const [text, troubled] = summary(document);
  const { models, workers } = document;
  const sum = (field) => models.reduce((all, model) => all + model[field], 0);
  return html`<section class=${`summary ${troubled ? "troubled" : ""}`} aria-label="Summary">
    <p>${text}</p>
    <dl class="totals">
      <${Total} name="Workers ready" value=${workers.filter(({ status }) => status === "serving").length} of=${workers.length} />
      <${Total} name="Slots in use" value=${sum("used")} of=${sum("slots")} />
      <${Total} name="Waiting" value=${total(models, "waiting")} />
      <${Total} name="Tokens/s" value=${Math.round(sum("tokens_per_second")).toLocaleString()} />
    </dl>
  </section>`;
}

// Tells screen readers when a worker is in trouble or recovers.
export function Announcer({ workers }) {
  const before = useRef(new Map());
  const [said, setSaid] = useState("");
  const states = workers.map(({ id, status }) => `${id} ${status}`).join("\n");
  useEffect(() => {
    const news = workers.filter(({ id, status }) => before.current.has(id) && before.current.get(id) !== status);
    before.current = new Map(workers.map(({ id, status }) => [id, status]));
    if (news.length) setSaid(news.map(({ id, status }) => `Worker ${id} is ${status}.`).join(" "));
  }, [states]);
  return html`<p class="hidden" role="status">${said}</p>`;
}

export function Moves({ moves }) {
  if (moves.length === 0) return null;
  return html`<section aria-label="Moved requests">
    <h2>Moved requests</h2>
    <ul class="moves card" tabindex="0" aria-label="Moved requests of the last five minutes">
      ${[...moves].reverse().map(
        (move) => html`<li key=${`${move.request} ${move.time} ${move.to}`}>
          <time dateTime=${new Date(move.time * 1000).toISOString()}>${new Date(move.time * 1000).toLocaleTimeString()}</time>
          ${" "}<code title=${move.request}>${move.request.slice(0, SHORT)}</code> left <b>${move.from}</b>
          ${move.to === null ? " and waits in the queue" : html` and continues on <b>${move.to}</b>`}
          ${move.reason === "worker_lost" ? ", because the worker is gone" : ", which released it"}
        </li>`,
      )}
    </ul>
  </section>`;
}

export function Batches({ batches, now }) {
  if (batches.length === 0) return null;
  return html`<section aria-label="Batches">
    <h2>Batches</h2>
    <ul class="batches">
      ${batches.map(
        (batch) => html`<li key=${batch.id}>
          <code>${batch.id}</code> <b>${batch.status}</b>${" "}
          <progress aria-label=${`Progress of ${batch.id}`} max=${Math.max(1, batch.total)} value=${batch.completed + batch.failed}></progress>
          ${` ${batch.completed + batch.failed} of ${batch.total} lines`}${batch.failed > 0 && `, ${batch.failed} failed`}
          ${` · ${batch.model ?? "several models"} · for ${seconds(Math.max(0, now - batch.created))}`}
        </li>`,
      )}
    </ul>
  </section>`;
}
