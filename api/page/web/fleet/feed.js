// The fleet view's one stream of events: the latest document, and a history of 15 minutes for the charts.

import { ApiError, apiKey, request, serverSentEvents } from "../api.js";
import { observable } from "../state.js";

export const HISTORY_SECONDS = 900;
const RETRY_MS = 2000;

// {state: "connecting" | "open" | "refused" | "lost", error, document}
export const fleet = observable({ state: "connecting", error: null, document: null });

// One sample per document: {time, models: {id: {tokens, waiting, p95, failures}}}
export const history = [];

let connection = null;

function show(change) {
  fleet.set({ ...fleet.get(), ...change });
}

// Returns how many requests for a model have failed since the document before. Their number falls when a replica ends,
// and replicas of an earlier version do not count them.
const counted = new Map();

function failed({ id, failures }) {
  if (failures === undefined) return null;
  const more = Math.max(0, failures - (counted.get(id) ?? failures));
  counted.set(id, failures);
  return more;
}

function sample(document) {
  const models = {};
  for (const model of document.models) {
    models[model.id] = {
      tokens: model.tokens_per_second,
      waiting: model.tiers.reduce((sum, tier) => sum + tier.waiting, 0),
      p95: model.time_to_first_token.p95,
      failures: failed(model),
    };
  }
  history.push({ time: document.time, models });
  while (history[0].time < document.time - HISTORY_SECONDS) history.shift();
}

async function follow(signal) {
  while (!signal.aborted) {
    try {
      const response = await request("v1/fleet/events", { signal });
      for await (const { data } of serverSentEvents(response)) {
        if (data === undefined) continue;
        const document = JSON.parse(data);
        sample(document);
        show({ state: "open", error: null, document });
      }
    } catch (error) {
      if (signal.aborted) return;
      const refused = error instanceof ApiError && (error.status === 401 || error.status === 403);
      show({ state: refused ? "refused" : "lost", error });
      if (refused) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function connect() {
  connection?.abort();
  connection = null;
  if (document.hidden) return;
  connection = new AbortController();
  follow(connection.signal);
}

export function watchFleet() {
  // A hidden page costs the service nothing.
  document.addEventListener("visibilitychange", connect);
  apiKey.listen(() => {
    show({ state: "connecting", error: null, document: null });
    connect();
  });
  connect();
}

// Resolves with the seconds until no worker holds a job any more; null if that can't be seen.
export function untilFreed(job) {
  const began = performance.now();
  return new Promise((resolve) => {
    if (!job || fleet.get().state !== "open") {
      resolve(null);
      return;
    }
    const stop = fleet.listen(({ state, document }) => {
      const held = document?.workers.some((worker) => worker.running.some((one) => one.request === job));
      if (state === "open" && held) return;
      stop();
      resolve(state === "open" ? (performance.now() - began) / 1000 : null);
    });
  });
}
