// How an answer gets on: its place in the queue, and then its figures.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { seconds } from "../format.js";

const CAUSES = { worker_lost: "its worker was gone", worker_draining: "its worker stopped", engine_lost: "its engine ended" };

const MAX_DOTS = 12;

function state(queue) {
  if (!queue) return "Waiting for the server …";
  if (queue.ahead === null) return "A worker reads the prompt …";
  const place = queue.ahead === 0 ? "Next in the queue" : `${queue.ahead} ahead in the queue`;
  return queue.expected_wait === null ? place : `${place}, about ${Math.max(1, Math.round(queue.expected_wait))} s`;
}

// Dots for the requests ahead, and one for this.
export function Waiting({ queue }) {
  const ahead = Math.min(MAX_DOTS, queue?.ahead ?? 0);
  return html`<p class="waiting" role="status">
    <span class="place" aria-hidden="true">${Array.from({ length: ahead + 1 }, (_, at) => html`<i key=${at}></i>`)}</span>
    ${state(queue)}
  </p>`;
}

export function Figures({ message }) {
  const { stats = {}, attempts = [], finish, stopped, freed } = message;
  const parts = [message.model];
  if (stats.firstToken !== undefined) parts.push(`first token ${seconds(stats.firstToken)}`);
  if (stats.perSecond !== undefined) parts.push(`${stats.perSecond.toFixed(1)} tokens/s`);
  if (stats.tokens !== undefined) parts.push(`${stats.promptTokens} + ${stats.tokens} tokens`);
  if (finish === "length") parts.push("cut off at the maximum number of tokens");
  if (stopped) parts.push(freed === undefined ? "stopped" : `stopped, slot freed after ${seconds(freed)}`);
  return html`<p class="figures" title="Tokens of the prompt + of the answer">
    ${parts.join(" · ")}
    ${attempts.map(({ number, cause }) => html`<span key=${number} class="moved">continued on another worker, because ${CAUSES[cause] ?? cause}</span>`)}
  </p>`;
}
