// Models as cards: their queue by priority, and charts.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { loadState, reasons, seconds } from "../format.js";
import { Chart } from "./chart.js";
import { HISTORY_SECONDS, history } from "./feed.js";

const MAX_DOTS = 40;

const wait = (value) => (value === null ? "–" : value === 0 ? "none" : seconds(value));

function Tier({ tier }) {
  return html`<tr>
    <th scope="row">${tier.tier}</th>
    <td>${tier.running}</td>
    <td>${tier.waiting}<span class="queue" aria-hidden="true">${Array.from({ length: Math.min(MAX_DOTS, tier.waiting) }, (_, at) => html`<i key=${at}></i>`)}</span></td>
    <td>${wait(tier.expected_wait)}</td>
  </tr>`;
}

function Charts({ model }) {
  const times = history.map(({ time }) => time);
  const row = (field) => history.map(({ models }) => models[model.id]?.[field] ?? null);
  const known = times.length ? times.at(-1) - times[0] : 0;
  const span = Math.min(HISTORY_SECONDS, Math.max(60, known));
  const { p95 } = model.time_to_first_token;
  const failures = row("failures");
  const common = { times, span };
  const chart = (title, shown, least, field) => html`<${Chart} title=${title} shown=${shown} least=${least} values=${row(field)} ...${common} />`;
  return html`<div class="charts">
    ${chart("Tokens/s", String(Math.round(model.tokens_per_second)), 10, "tokens")}
    ${chart("First token p95", p95 === null ? "–" : seconds(p95), 0.5, "p95")}
    ${chart("Waiting", String(row("waiting").at(-1) ?? 0), 4, "waiting")}
    <${Chart} title="Errors" shown=${String(failures.reduce((sum, one) => sum + one, 0))} least=${2} values=${failures} counted ...${common} />
  </div>`;
}

// How the model writes calls and reasoning, and what its chat template needs replaced.
const formats = ({ formats: shown }) =>
  shown && [`tool calls: ${shown.tool_parser}`, `reasoning: ${shown.reasoning_parser}`, ...shown.replaced.map((name) => name.replaceAll("_", " ")), ...shown.warnings].join(", ");

function Model({ model, nodes }) {
  const facts = [
    loadState(model.state),
    model.kinds?.filter((kind) => kind !== "generate").join(" + "),
    model.modalities.join(" + "),
    model.context_length > 0 && `${model.context_length.toLocaleString()} tokens of context`,
    model.workers === 1 ? "1 worker" : `${model.workers} workers`,
    `${model.used} of ${model.slots} slots`,
    formats(model),
    reasons(nodes, model.id),
  ];
  const busy = model.tiers.filter(({ tier, running, waiting }) => running || waiting || tier === "default");
  return html`<section class="card model" aria-label=${model.id}>
    <div>
      <h3>${model.id}</h3>
      <p class="facts">${facts.filter(Boolean).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
      <table>
        <thead><tr><th scope="col">Priority</th><th scope="col">Running</th><th scope="col">Waiting</th><th scope="col">Expected wait</th></tr></thead>
        <tbody>${busy.map((tier) => html`<${Tier} key=${tier.tier} tier=${tier} />`)}</tbody>
      </table>
    </div>
    <${Charts} model=${model} />
  </section>`;
}

/** @param {{models: object[], nodes: object[]}} props */
export function Models({ models, nodes }) {
  return html`<section aria-label="Models">
    <h2>Models and their queues</h2>
    <div class="cards">${models.map((model) => html`<${Model} key=${model.id} model=${model} nodes=${nodes} />`)}</div>
  </section>`;
}
