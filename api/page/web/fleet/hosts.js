// Hosts as cards, with their workers and the slots of each: a running request is a dot, which moves with its request.

import { html, useLayoutEffect, useRef } from "../vendor/htm-preact-3.1.1.js";
import { percent, size } from "../format.js";

const MOVE_MS = 900;
const REMEMBERED_MS = 15_000;
const MAX_CELLS = 256;
const TROUBLED = new Set(["silent", "gone", "failing"]);
const LEGEND = [
  ["", "free slot"],
  ["default", "running request"],
  ["priority", "of priority"],
  ["flex", "flex or batch"],
  ["moved", "continued from another worker"],
];
const still = matchMedia("(prefers-reduced-motion: reduce)");

// Where the dot of each request was last drawn, from the corner of all hosts: {worker, left, top, time}.
const places = new Map();

// Lets the dots of requests that have moved to another worker go there from where they were.
function animate(root) {
  const now = performance.now();
  const corner = root.getBoundingClientRect();
  for (const dot of root.querySelectorAll("[data-job]")) {
    const { job, worker } = dot.dataset;
    const box = dot.getBoundingClientRect();
    const place = { worker, left: box.left - corner.left, top: box.top - corner.top, time: now };
    const before = places.get(job);
    places.set(job, place);
    if (!before || before.worker === worker || still.matches) continue;
    const from = `translate(${before.left - place.left}px, ${before.top - place.top}px) scale(1.6)`;
    dot.animate([{ transform: from }, { transform: "none" }], { duration: MOVE_MS, easing: "ease-in-out" });
  }
  for (const [job, { time }] of places) if (now - time > REMEMBERED_MS) places.delete(job);
}

// Gives each running request a slot of its own for as long as it runs.
function useSlots(running, count) {
  const held = useRef([]);
  const jobs = new Map(running.map((job) => [job.request, job]));
  const next = held.current.map((request) => (jobs.has(request) ? request : null));
  for (const request of jobs.keys()) {
    if (next.includes(request)) continue;
    const free = next.indexOf(null);
    next[free === -1 ? next.length : free] = request;
  }
  while (next.length && next.at(-1) === null) next.pop();
  held.current = next;
  const cells = Math.min(MAX_CELLS, Math.max(count, next.length));
  return Array.from({ length: cells }, (_, at) => jobs.get(next[at]) ?? null);
}

function Slots({ worker }) {
  const slots = useSlots(worker.running, worker.slots);
  const label = `${worker.running.length} of ${worker.slots} slots in use`;
  return html`<div class=${`slots ${slots.length > 64 ? "dense" : ""}`} role="img" aria-label=${label}>
    ${slots.map(
      (job, at) => html`<span key=${at} class="slot">
        ${job &&
        html`<span
          key=${job.request}
          class=${`stream ${job.tier} ${job.attempt > 1 ? "moved" : ""}`}
          data-job=${job.request}
          data-worker=${worker.id}
          title=${`${job.request}, ${job.tier}, attempt ${job.attempt}`}
        ></span>`}
      </span>`,
    )}
  </div>`;
}

// Replicas of an earlier version do not have the field.
const unread = ({ unread_protocols: versions = [] }) =>
  versions.length ? `cannot read jobs of protocol version ${versions.join(", ")}` : "";

// With the reason for an engine that has only one slot. Replicas of an earlier version do not have the fields.
const engine = ({ engine: kind, engine_reason: reason }) =>
  kind === "stateful" ? `stateful engine: ${reason}` : kind && `${kind} engine`;

function Worker({ worker, now }) {
  const trouble = TROUBLED.has(worker.status);
  const silence = Math.max(0, now - worker.last_heartbeat);
  const facts = trouble
    ? [`last heartbeat ${silence.toFixed(1)} s ago`]
    : [
        worker.device,
        engine(worker),
        `${Math.round(worker.tokens_per_second)} tokens/s`,
        `KV cache ${percent(worker.cache_usage)}`,
        worker.drafted > 0 && `${percent(worker.accepted / worker.drafted)} of draft tokens accepted`,
        worker.engine_restarts > 0 && `engine restarted ${worker.engine_restarts} times`,
      ];
  return html`<article class=${`worker ${trouble ? "troubled" : ""}`} aria-label=${worker.id}>
    <h4>${worker.id} <span class=${`status ${worker.status}`}>${worker.status}</span></h4>
    <p class="faint">${worker.model}</p>
    <${Slots} worker=${worker} />
    <p class="facts">${[...facts, worker.detail, unread(worker)].filter(Boolean).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
  </article>`;
}

// What the models of a node hold of its memory, and of that of each discrete GPU.
function Memory({ node }) {
  const inMemory = ({ status }) => ["loaded", "loading", "unloading"].includes(status);
  const held = node.models.filter(inMemory);
  return [["", node.memory], ...Object.entries(node.devices ?? {})].map(([device, total]) => {
    const taken = ({ memory = 0, device_memory = {} }) => (device ? (device_memory[device] ?? 0) : memory);
    const used = held.reduce((sum, model) => sum + taken(model), 0);
    const named = (model) => `${model.name} ${size(taken(model))}${model.status === "loaded" ? "" : ` (${[model.status, model.detail].filter(Boolean).join(": ")})`}`;
    const models = held.filter(taken);
    const what = `models${device && ` on ${device}`}`;
    return html`<div key=${device} class="memory faint">
      <div class="stack" role="meter" aria-label=${`Memory of ${what}`} aria-valuemax=${total} aria-valuenow=${used}>
        ${models.map((model) => html`<i key=${model.name} class=${model.status} title=${named(model)} style=${{ width: `${(100 * taken(model)) / total}%` }}></i>`)}
      </div>
      ${`${size(used)} of ${size(total)} for ${what}`}${models.length > 0 && `: ${models.map(named).join(", ")}`}
    </div>`;
  });
}

/** @param {{workers: object[], nodes: object[], now: number}} props */
export function Hosts({ workers, nodes, now }) {
  const place = useRef(null);
  useLayoutEffect(() => animate(place.current));
  const names = [...new Set([...workers, ...nodes].map(({ host }) => host))].sort();
  return html`<section aria-label="Hosts">
    <h2>Hosts</h2>
    ${names.length === 0 && html`<p>No worker is there. Start one with <code>vinoqueue worker</code>.</p>`}
    <div class="hosts" ref=${place}>
      ${names.map(
        (name) => html`<section key=${name} class="card host" aria-label=${name}>
          <h3>${name}</h3>
          ${nodes.filter(({ host }) => host === name).map((node) => html`<${Memory} key=${node.id} node=${node} />`)}
          <div class="workers">
            ${workers.filter(({ host }) => host === name).map((worker) => html`<${Worker} key=${worker.id} worker=${worker} now=${now} />`)}
          </div>
        </section>`,
      )}
    </div>
    <ul class="legend faint">
      ${LEGEND.map(([stream, text]) => html`<li key=${text}><span class="slot">${stream && html`<span class=${`stream ${stream}`}></span>`}</span> ${text}</li>`)}
    </ul>
  </section>`;
}
