// Tokens of the last 31 days, by key, team or model.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { Named } from "./records.js";
import { Section, Table, useListed } from "./section.js";

const DAY = 86_400;
const DAYS = 31;
const FIELDS = ["num_model_requests", "input_tokens", "output_tokens", "engine_seconds", "num_errors"];
const GROUPS = { api_key_id: "Key", project_id: "Team", model: "Model" };

const today = () => Math.floor(Date.now() / 1000 / DAY) * DAY;

const path = (group) => `v1/organization/usage/completions?start_time=${today() - (DAYS - 1) * DAY}&limit=${DAYS}&group_by[]=${group}`;

// Returns the sums of each key or model over all days, the largest first.
function sums(buckets, group) {
  const found = new Map();
  for (const result of buckets.flatMap(({ results }) => results)) {
    const sum = found.get(result[group]) ?? Object.fromEntries(FIELDS.map((field) => [field, 0]));
    for (const field of FIELDS) sum[field] += result[field];
    found.set(result[group], sum);
  }
  return [...found].sort(([, one], [, other]) => other.output_tokens - one.output_tokens);
}

const compact = new Intl.NumberFormat("en", { notation: "compact" });
const date = (time) => new Date(time * 1000).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });

function Days({ buckets }) {
  const days = buckets.map(({ start_time: time, results }) => ({
    time,
    tokens: results.reduce((sum, { input_tokens: input, output_tokens: output }) => sum + input + output, 0),
  }));
  const top = Math.max(1, ...days.map(({ tokens }) => tokens));
  const total = days.reduce((sum, { tokens }) => sum + tokens, 0);
  return html`<figure class="card days">
    <figcaption>Tokens per day <b>${total.toLocaleString()} in all</b></figcaption>
    ${total > 0 && html`<span class="top">${compact.format(top)}</span>`}
    <svg viewBox=${`0 0 ${days.length * 10} 60`} preserveAspectRatio="none" role="img" aria-label=${`Tokens per day, ${total.toLocaleString()} in all`}>
      <path d=${`M0 0.5H${days.length * 10}M0 59.5H${days.length * 10}`} />
      ${days.map(
        ({ time, tokens }, at) => html`<rect key=${time} x=${at * 10 + 1} width="8" y=${59 - (tokens / top) * 58} height=${(tokens / top) * 58}>
          <title>${`${date(time)}: ${tokens.toLocaleString()} tokens`}</title>
        </rect>`,
      )}
    </svg>
    <span class="ends"><time>${date(days[0]?.time ?? 0)}</time><time>today</time></span>
  </figure>`;
}

export function Usage() {
  const [group, setGroup] = useState("api_key_id");
  const { found, error } = useListed(path(group));
  const rows = found ? sums(found.data, group) : [];
  const by = html`<label class="faint">by <select value=${group} onChange=${({ target }) => setGroup(target.value)}>
    ${Object.entries(GROUPS).map(([name, label]) => html`<option key=${name} value=${name}>${label.toLowerCase()}</option>`)}
  </select></label>`;
  return html`<${Section} title="Usage of the last 31 days" error=${error} aside=${found && by}>
    ${found && html`<${Days} buckets=${found.data} />`}
    ${found && !rows.length && html`<p class="faint">Nothing yet. A request counts when it has ended.</p>`}
    ${rows.length > 0 &&
    html`<${Table}
        label="Table of usage"
        heads=${[GROUPS[group], "Requests", "Input tokens", "Output tokens", "Engine seconds", "Errors"]}
        rows=${rows.map(([name, sum]) => ({
          key: name,
          cells: [
            name === null ? `without a ${GROUPS[group].toLowerCase()}` : html`<${Named} id=${name} />`,
            ...FIELDS.map((field) => Math.round(sum[field]).toLocaleString()),
          ],
        }))}
      />`}
  </${Section}>`;
}
