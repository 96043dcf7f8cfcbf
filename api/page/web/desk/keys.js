// API keys: create, see what is used of their budgets, and revoke.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { Drawer } from "../drawer.js";
import { CopyButton } from "../chat/snippet.js";
import { Section, Table, call, useListed } from "./section.js";

const PATH = "v1/organization/admin_api_keys";
const WARNING = 0.8;

const number = (value) => value.toLocaleString();

function Budget({ name, used, of }) {
  if (of === null) return html`<td>${number(used)}</td>`;
  const much = used / of >= WARNING;
  return html`<td class=${much ? "warning" : ""}>
    <meter aria-label=${`Tokens of ${name}`} min="0" max=${of} value=${used}></meter> ${number(used)} of ${number(of)}
  </td>`;
}

function Key({ entry, revoke }) {
  const name = entry.name || entry.id;
  return html`<tr>
    <th scope="row">${entry.name && html`${entry.name}<br />`}<code>${entry.id}</code></th>
    <td>${[...entry.scopes, entry.priority].join(", ")}</td>
    <td>${entry.models.join(", ") || "all"}</td>
    <${Budget} name=${`${name} today`} used=${entry.tokens_used_today} of=${entry.tokens_per_day} />
    <${Budget} name=${`${name} this month`} used=${entry.tokens_used_this_month} of=${entry.tokens_per_month} />
    <td><button type="button" class="quiet" onClick=${() => confirm(`Revoke ${name}?`) && revoke()}>Revoke ${name}</button></td>
  </tr>`;
}

function Creation({ create }) {
  const [fields, setFields] = useState({ name: "", day: "", month: "", admin: false });
  const set = (name) => ({ target }) => setFields({ ...fields, [name]: name === "admin" ? target.checked : target.value });
  const submit = (event) => {
    event.preventDefault();
    create({
      name: fields.name.trim(),
      scopes: fields.admin ? ["admin"] : [],
      ...(fields.day && { tokens_per_day: Number(fields.day) }),
      ...(fields.month && { tokens_per_month: Number(fields.month) }),
    });
  };
  return html`<form class="creation" onSubmit=${submit}>
    <label>Name <input required value=${fields.name} onInput=${set("name")} /></label>
    <label>Tokens per day <input type="number" min="1" placeholder="no limit" value=${fields.day} onInput=${set("day")} /></label>
    <label>Tokens per month <input type="number" min="1" placeholder="no limit" value=${fields.month} onInput=${set("month")} /></label>
    <label class="check"><input type="checkbox" checked=${fields.admin} onChange=${set("admin")} /> Scope admin</label>
    <button type="submit">Create key</button>
  </form>`;
}

export function Keys() {
  const { found, error, act } = useListed(() => call(`${PATH}?limit=100`));
  const [secret, setSecret] = useState(null);
  const create = async (body) => setSecret((await act(() => call(PATH, { method: "POST", body })))?.value ?? null);
  const revoke = (id) => act(() => call(`${PATH}/${id}`, { method: "DELETE" }));
  return html`<${Section} title="API keys" error=${error}>
    ${found &&
    html`<${Table}
        label="Table of API keys"
        heads=${["Key", "May", "Models", "Tokens today", "Tokens this month", "Actions"]}
        rows=${found.data.map((entry) => html`<${Key} key=${entry.id} entry=${entry} revoke=${() => revoke(entry.id)} />`)}
      />
      ${found.has_more && html`<p class="faint">There are more keys: <code>vinoqueue key list</code>.</p>`}
      <${Creation} create=${create} />`}
    ${secret &&
    html`<${Drawer} title="The new key" kind="centre" close=${() => setSecret(null)}>
      <p>It is shown only now.</p>
      <p><code>${secret}</code> <${CopyButton} text=${secret} /></p>
    </${Drawer}>`}
  </${Section}>`;
}
