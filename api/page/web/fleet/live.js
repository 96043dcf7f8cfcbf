// The live view: models and their queues, charts, workers, and where requests move when a worker dies.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { Chart } from "./chart.js";
import { fleet, history } from "./feed.js";
import { percent, seconds } from "../format.js";
import { useObservable } from "../state.js";

const SHORT = 8;
const TROUBLED = new Set(["silent", "gone", "failing"]);

const wait = (value) => (value === null ? "–" : seconds(value));
const short = (id) => id.slice(0, SHORT);

// Replicas of an earlier version do not have the field.
const unread = ({ unread_protocols: versions = [] }) =>
  versions.length ? `cannot read jobs of protocol version ${versions.join(", ")}` : "";

function Meter({ label, value, of, text }) {
  return html`<span class="meter">
    <meter aria-label=${label} min="0" max=${Math.max(of, 1e-9)} value=${value}></meter> ${text}
  </span>`;
}

function Model({ model }) {
  const { p50, p95, requests } = model.time_to_first_token;
  return html`<section class="card" aria-label=${model.id}>
    <h2>${model.id}</h2>
    <p class="figures">
      ${model.modalities.join(" + ")} · ${model.context_length.toLocaleString()} tokens of context ·${" "}
      ${model.workers === 1 ? "1 worker" : `${model.workers} workers`}
    </p>
    <dl>
      <div><dt>Slots</dt><dd><${Meter} label="Slots in use" value=${model.used} of=${model.slots} text=${`${model.used}/${model.slots}`} /></dd></div>
      <div><dt>Tokens/s</dt><dd>${Math.round(model.tokens_per_second)}</dd></div>
      <div><dt>First token p50</dt><dd>${wait(p50)}</dd></div>
      <div><dt>First token p95</dt><dd>${wait(p95)}</dd></div>
    </dl>
    <p class="figures">First token: ${requests} requests of all replicas in 15 minutes</p>
    <table>
      <thead><tr><th scope="col">Tier</th><th scope="col">Waiting</th><th scope="col">Running</th><th scope="col">Expected wait</th></tr></thead>
      <tbody>
        ${model.tiers.map(
          (tier) => html`<tr key=${tier.tier}>
            <th scope="row">${tier.tier}</th><td>${tier.waiting}</td><td>${tier.running}</td><td>${wait(tier.expected_wait)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}

function Jobs({ running }) {
  const shown = running.slice(0, 32);
  return html`<span class="jobs">
    ${shown.map((job) => html`<code key=${job.request} class=${job.attempt > 1 ? "moved" : ""} title=${`${job.request}, attempt ${job.attempt}`}>${short(job.request)}</code>`)}
    ${running.length > shown.length && html`<span>and ${running.length - shown.length} more</span>`}
  </span>`;
}

function Worker({ worker, now }) {
  const trouble = TROUBLED.has(worker.status);
  const cell = (label, content) => html`<td data-label=${label}>${content}</td>`;
  return html`<tr class=${trouble ? "troubled" : ""}>
    <th scope="row">${worker.id}</th>
    ${cell("Status", html`<span class=${`status ${worker.status}`}>${worker.status}</span> ${worker.detail} ${unread(worker)}`)}
    ${cell("Host", worker.host)}
    ${cell("Model", worker.model)}
    ${cell("Device", html`<span title=${worker.engine_reason}>${worker.device}, ${worker.engine}</span>`)}
    ${cell("Slots", html`<${Meter} label="Slots in use" value=${worker.used} of=${worker.slots} text=${`${worker.used}/${worker.slots}`} />`)}
    ${cell("Batch", worker.batch)}
    ${cell("KV cache", html`<${Meter} label="KV cache in use" value=${worker.cache_usage} of=${1} text=${percent(worker.cache_usage)} />`)}
    ${cell("Tokens/s", Math.round(worker.tokens_per_second))}
    ${cell("Engine restarts", worker.engine_restarts)}
    ${cell("Heartbeat", `${Math.max(0, now - worker.last_heartbeat).toFixed(1)} s ago`)}
    ${cell("Requests", html`<${Jobs} running=${worker.running} />`)}
  </tr>`;
}

function Workers({ workers, now }) {
  const heads = ["Worker", "Status", "Host", "Model", "Device", "Slots", "Batch", "KV cache", "Tokens/s", "Engine restarts", "Heartbeat", "Requests"];
  return html`<section aria-label="Workers">
    <h2>Workers</h2>
    ${workers.length === 0
      ? html`<p>No worker is there. Start one with <code>vinoqueue worker</code>.</p>`
      : html`<div class="wide" tabindex="0" role="region" aria-label="Table of workers">
          <table class="workers">
            <thead><tr>${heads.map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
            <tbody>${workers.map((worker) => html`<${Worker} key=${worker.id} worker=${worker} now=${now} />`)}</tbody>
          </table>
        </div>`}
  </section>`;
}

function Batches({ batches, now }) {
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

function Moves({ moves }) {
  const newest = [...moves].reverse();
  return html`<section aria-label="Moved requests">
    <h2>Moved requests</h2>
    ${newest.length === 0
      ? html`<p>None in the last five minutes.</p>`
      : html`<ul class="moves">
          ${newest.map(
            (move) => html`<li key=${`${move.request} ${move.time} ${move.to}`}>
              <time dateTime=${new Date(move.time * 1000).toISOString()}>${new Date(move.time * 1000).toLocaleTimeString()}</time>
              ${" "}<code title=${move.request}>${short(move.request)}</code> left <b>${move.from}</b>
              ${move.to === null ? " and waits in the queue" : html` and continues on <b>${move.to}</b>`}
              ${move.reason === "worker_lost" ? ", because the worker is gone" : ", which released it"}
            </li>`,
          )}
        </ul>`}
  </section>`;
}

// Tells screen readers when a worker is in trouble or recovers.
function Announcer({ workers }) {
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

function useCharts() {
  const names = [...new Set(history.flatMap(({ models }) => Object.keys(models)))].sort();
  const times = history.map(({ time }) => time);
  const row = (name, field) => history.map(({ models }) => models[name]?.[field] ?? null);
  return { names, times, row };
}

function Fleet({ theme }) {
  const { state, error, document } = useObservable(fleet);
  const { names, times, row } = useCharts();
  if (document === null) {
    if (state === "connecting") return html`<p role="status">Connecting …</p>`;
    return html`<p class="error" role="alert">${error.message}</p>
      ${state === "refused" && html`<p>Enter a key with the scope <code>admin</code> in the side bar. <code>vinoqueue key create --scope admin</code> makes one.</p>`}`;
  }
  const now = document.time;
  const stale = state !== "open" || document.store !== "up";
  return html`
    ${stale && html`<p class="error" role="alert">${document.store === "up" ? "The connection is lost." : "The store does not respond."} This is the last known state.</p>`}
    <${Announcer} workers=${document.workers} />
    <div class="cards">${document.models.map((model) => html`<${Model} key=${model.id} model=${model} />`)}</div>
    <div class="charts">
      <${Chart} title="Tokens per second" unit="" top=${10} times=${times} names=${names} rows=${names.map((name) => row(name, "tokens"))} theme=${theme} />
      <${Chart}
        title="Requests"
        unit=""
        top=${4}
        times=${times}
        names=${names.flatMap((name) => [`${name} running`, `${name} waiting`])}
        rows=${names.flatMap((name) => [row(name, "running"), row(name, "waiting")])}
        theme=${theme}
      />
      <${Chart} title="Time to first token, p95 of 15 minutes" unit=" s" top=${0.5} times=${times} names=${names} rows=${names.map((name) => row(name, "p95"))} theme=${theme} />
    </div>
    <${Moves} moves=${document.moves} />
    <${Batches} batches=${document.batches} now=${now} />
    <${Workers} workers=${document.workers} now=${now} />
    <section aria-label="API replicas">
      <h2>API replicas</h2>
      <ul>
        ${document.replicas.map(
          ({ id, address, streams, version }) => html`<li key=${id}>
            <b>${id}</b>${id === document.replica ? " (this one)" : ""} · ${address} · ${streams} open responses · version ${version}
          </li>`,
        )}
      </ul>
    </section>
  `;
}

export function Live({ theme, opener }) {
  return html`<main class="view">
    <div class="bar">${opener}<h1>Fleet</h1></div>
    <div class="live"><${Fleet} theme=${theme} /></div>
  </main>`;
}
