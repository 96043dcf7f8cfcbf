// API keys: create, see what is used of their budgets, change their limits, and revoke.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { CopyButton } from "../chat/snippet.js";
import { Drawer } from "../drawer.js";
import { observable } from "../state.js";
import { RowButton, Section, Table, call, useListed } from "./section.js";

const PATH = "v1/organization/admin_api_keys";
const WARNING = 0.8;
const PRIORITIES = ["default", "flex", "priority"];

const LIMITS = [
  { name: "tokens_per_day", label: "Tokens per day", hint: "A budget: prompts and answers, until midnight UTC." },
  { name: "tokens_per_month", label: "Tokens per month", hint: "A budget until the first of the next month, UTC." },
  { name: "requests_per_minute", label: "Requests per minute", short: "requests/min" },
  { name: "tokens_per_minute", label: "Tokens per minute", short: "tokens/min" },
  { name: "concurrency", label: "Requests at once", short: "at once" },
  { name: "queue_timeout", label: "Longest wait in the queue (s)", short: "s in the queue", step: "any" },
  { name: "default_max_tokens", label: "Default length of answers (tokens)", short: "tokens by default" },
];

// Names of keys by their id, for other sections.
export const keyNames = observable({});

const number = (value) => value.toLocaleString();

function Budget({ name, used, of }) {
  if (of === null) return number(used);
  return html`<span class=${used / of >= WARNING ? "warning" : ""}>
    <meter aria-label=${`Tokens of ${name}`} min="0" max=${of} high=${of * WARNING} optimum="0" value=${used}></meter>
    ${number(used)} of ${number(of)}
  </span>`;
}

function row(entry, edit, revoke) {
  const name = entry.name || entry.id;
  const rights = [...entry.scopes, entry.priority === "default" ? "" : entry.priority, entry.models.join(", ")].filter(Boolean);
  const limits = LIMITS.filter(({ short, name: field }) => short && entry[field] !== null).map(({ short, name: field }) => `${number(entry[field])} ${short}`);
  return {
    key: entry.id,
    cells: [
      html`${entry.name && html`${entry.name}<br />`}<code>${entry.id}</code>`,
      rights.join(" · ") || "all models",
      html`<${Budget} name=${`${name} today`} used=${entry.tokens_used_today} of=${entry.tokens_per_day} />`,
      html`<${Budget} name=${`${name} this month`} used=${entry.tokens_used_this_month} of=${entry.tokens_per_month} />`,
      limits.join(", ") || "none",
      html`<span class="actions">
        <${RowButton} verb="Edit" of=${name} act=${edit} />
        <${RowButton} verb="Revoke" of=${name} danger act=${() => confirm(`Revoke ${name}?`) && revoke()} />
      </span>`,
    ],
  };
}

/** The form of a new key, or of the limits of `entry`. `send` takes the body, and returns whether it was accepted. */
function Form({ entry, error, send, close }) {
  const [fields, setFields] = useState({ name: "", admin: false, priority: PRIORITIES[0], models: "", ...entry });
  const set = (name) => ({ target }) => setFields({ ...fields, [name]: target.type === "checkbox" ? target.checked : target.value });
  const body = () => {
    const limits = Object.fromEntries(LIMITS.map(({ name }) => [name, fields[name] ? Number(fields[name]) : null]));
    if (entry) return limits;
    const models = fields.models.split(",").map((one) => one.trim()).filter(Boolean);
    return { ...limits, name: fields.name.trim(), scopes: fields.admin ? ["admin"] : [], priority: fields.priority, models };
  };
  const submit = async (event) => {
    event.preventDefault();
    if (await send(body())) close();
  };
  return html`<${Drawer} title=${entry ? `Limits of ${entry.name || entry.id}` : "New key"} close=${close}>
    <form class="key-form" onSubmit=${submit}>
      ${!entry &&
      html`<label>Name <input required maxlength="200" value=${fields.name} onInput=${set("name")} /></label>
        <label>Models <input placeholder="all, or names with commas" value=${fields.models} onInput=${set("models")} /></label>
        <label>Priority <select value=${fields.priority} onChange=${set("priority")}>${PRIORITIES.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>
        <label class="check"><input type="checkbox" checked=${fields.admin} onChange=${set("admin")} /> Scope admin: sees the fleet and uses this desk</label>`}
      ${LIMITS.map(
        ({ name, label, hint, step = "1" }) => html`<label key=${name}>
          ${label} <input type="number" min=${step === "1" ? 1 : 0} step=${step} placeholder="no limit" value=${fields[name] ?? ""} onInput=${set(name)} />
          ${hint && html`<small>${hint}</small>`}
        </label>`,
      )}
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <button type="submit">${entry ? "Save limits" : "Create key"}</button>
    </form>
  </${Drawer}>`;
}

export function Keys() {
  const { found, error, act } = useListed(async () => {
    const list = await call(`${PATH}?limit=100`);
    keyNames.set(Object.fromEntries(list.data.map(({ id, name }) => [id, name])));
    return list;
  });
  const [open, setOpen] = useState(null); // {} for a new key, {entry} for the limits of one
  const [secret, setSecret] = useState(null);
  const send = async (body) => {
    const done = await act(() => call(open.entry ? `${PATH}/${open.entry.id}` : PATH, { method: "POST", body }));
    setSecret(done?.value ?? null);
    return done !== null;
  };
  const revoke = (id) => act(() => call(`${PATH}/${id}`, { method: "DELETE" }));
  return html`<${Section}
    title="API keys"
    error=${open ? "" : error}
    aside=${found && html`<button type="button" onClick=${() => setOpen({})}>New key</button>`}
  >
    ${found &&
    html`<${Table}
        label="Table of API keys"
        heads=${["Key", "May", "Tokens today", "Tokens this month", "Other limits", "Actions"]}
        rows=${found.data.map((entry) => row(entry, () => setOpen({ entry }), () => revoke(entry.id)))}
      />
      ${found.has_more && html`<p class="faint">There are more keys: <code>vinoqueue key list</code>.</p>`}`}
    ${open && html`<${Form} entry=${open.entry} error=${error} send=${send} close=${() => setOpen(null)} />`}
    ${secret &&
    html`<${Drawer} title="The new key" kind="centre" close=${() => setSecret(null)}>
      <p>Copy it: it is shown only now.</p>
      <p class="secret"><code>${secret}</code> <${CopyButton} text=${secret} /></p>
    </${Drawer}>`}
  </${Section}>`;
}
