// The audit log: who changed what and when, the newest first.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { useObservable } from "../state.js";
import { Named } from "./records.js";
import { Section, Table, actions, useListed } from "./section.js";

const NOUNS = { api_key: "API key", project: "Team", batch: "Batch", worker: "Worker", model: "Model" };

const shown = (value) => (value === null ? "none" : String(value));

function row({ id, type, effective_at: at, actor, [type]: { id: target, data, changes_requested: changes } }) {
  const [noun, verb] = type.split(".");
  const who = actor.api_key ? html`<${Named} id=${actor.api_key.service_account.id} />` : actor.session.user.id;
  const details = Object.entries(data ?? changes ?? {}).map(([name, value]) => `${name}: ${shown(value)}`);
  return { key: id, cells: [new Date(at * 1000).toLocaleString(), who, `${NOUNS[noun]}: ${verb}`, html`<${Named} id=${target} />`, details.join(", ")] };
}

export function Audit() {
  const { found, error, more } = useListed("v1/organization/audit_logs?limit=20", [useObservable(actions)]);
  if (!found?.data.length) return null;
  return html`<${Section} title="Audit log" error=${error}>
    <${Table} label="Table of changes" heads=${["When", "Who", "What", "Of", "Details"]} rows=${found.data.map(row)} more=${more} />
  </${Section}>`;
}
