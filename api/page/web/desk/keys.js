// API keys. The secret of a new one is shown once.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { CopyButton } from "../chat/snippet.js";
import { Drawer } from "../drawer.js";
import { useObservable } from "../state.js";
import { Records, known } from "./records.js";
import { call } from "./section.js";

const PATH = "v1/organization/admin_api_keys";
const PRIORITIES = ["default", "flex", "priority"];
const ENDING = { verb: "Revoke", warning: "Requests with it are refused from then on.", end: (id) => call(`${PATH}/${encodeURIComponent(id)}`, { method: "DELETE" }) };

function rights({ scopes, priority, models }) {
  return [...scopes, priority === "default" ? "" : priority, models.join(", ")].filter(Boolean).join(" · ") || "all models";
}

function body({ name = "", admin, priority = PRIORITIES[0], models = "", project_id: team }, entry) {
  if (entry) return { project_id: team || null };
  const names = models.split(",").map((one) => one.trim()).filter(Boolean);
  return { name: name.trim(), project_id: team || null, models: names, priority, scopes: admin ? ["admin"] : [] };
}

export function Keys() {
  const entries = useObservable(known);
  const [secret, setSecret] = useState(null);
  const team = (id) => {
    const { name, status } = entries[id] ?? {};
    return id && `${name || id}${status === "archived" ? " (archived)" : ""}`;
  };
  const inputs = (fields, set, entry) => {
    const active = Object.values(entries).filter(({ status }) => status === "active");
    const own = entry?.project_id ? [entry.project_id] : []; // may be of a key file, or archived
    const choice = html`<label>Team <select value=${fields.project_id ?? ""} onChange=${set("project_id")}>
      <option value="">none</option>
      ${[...new Set([...own, ...active.map(({ id }) => id)])].map((id) => html`<option key=${id} value=${id}>${team(id)}</option>`)}
    </select></label>`;
    if (entry) return choice;
    return html`<label>Name <input required maxlength="200" value=${fields.name ?? ""} onInput=${set("name")} /></label>
      ${choice}
      <label>Models <input placeholder="all, or names with commas" value=${fields.models ?? ""} onInput=${set("models")} /></label>
      <label>Priority <select value=${fields.priority} onChange=${set("priority")}>${PRIORITIES.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>
      <label class="check"><input type="checkbox" checked=${fields.admin} onChange=${set("admin")} /> Scope admin: sees the fleet and uses this desk</label>`;
  };
  return html`<${Records}
      title="API keys"
      noun="key"
      path=${PATH}
      heads=${["Key", "May", "Team"]}
      cells=${(entry) => [rights(entry), team(entry.project_id)]}
      inputs=${inputs}
      body=${body}
      ending=${ENDING}
      then=${({ value }) => setSecret(value)}
    />
    ${secret &&
    html`<${Drawer} title="The new key" kind="centre" close=${() => setSecret(null)}>
      <p>Copy it: it is shown only now.</p>
      <p class="secret"><code>${secret}</code> <${CopyButton} text=${secret} /></p>
    </${Drawer}>`}`;
}
