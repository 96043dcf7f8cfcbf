// How an answer gets on: its place in the queue, and then its figures.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { seconds } from "../format.js";

const CAUSES = { worker_lost: "its worker was gone", worker_draining: "its worker stopped", engine_lost: "its engine ended" };

export function Waiting({ queue }) {
  if (!queue) return html`<p class="waiting" role="status">Waiting for the server …</p>`;
  if (queue.ahead === null) return html`<p class="waiting" role="status">A worker reads the prompt …</p>`;
  const place = queue.ahead === 0 ? "next in the queue" : `${queue.ahead} ahead in the queue`;
  const wait = queue.expected_wait === null ? "" : `, about ${seconds(queue.expected_wait)}`;
  return html`<p class="waiting" role="status">${place}${wait}</p>`;
}

export function Figures({ message }) {
  const { stats = {}, attempts = [], finish, stopped, freed } = message;
  const parts = [message.model];
  if (stats.firstToken !== undefined) parts.push(`first token ${seconds(stats.firstToken)}`);
  if (stats.perSecond !== undefined) parts.push(`${stats.perSecond.toFixed(1)} tokens/s`);
  if (stats.tokens !== undefined) parts.push(`${stats.promptTokens} + ${stats.tokens} tokens`);
  if (finish === "length") parts.push("cut off at the maximum number of tokens");
  if (stopped) parts.push(freed === undefined ? "stopped" : `stopped, slot freed after ${seconds(freed)}`);
  return html`<p class="figures">
    ${parts.join(" · ")}
    ${attempts.map(({ number, cause }) => html`<span key=${number} class="moved">continued on another worker, because ${CAUSES[cause] ?? cause}</span>`)}
  </p>`;
}
