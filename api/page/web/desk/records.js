// API keys and teams: records with limits, budgets and what is used of them. Create, change, and end them.

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { Drawer } from "../drawer.js";
import { observable, useObservable } from "../state.js";
import { RowButton, Section, Table, call, useListed } from "./section.js";

const WARNING = 0.8;

const LIMITS = [
  { name: "tokens_per_day", label: "Tokens per day", hint: "A budget: prompts and answers, until midnight UTC." },
  { name: "tokens_per_month", label: "Tokens per month", hint: "A budget until the first of the next month, UTC." },
  { name: "requests_per_minute", label: "Requests per minute", short: (value) => `${value} requests/min` },
  { name: "tokens_per_minute", label: "Tokens per minute", short: (value) => `${value} tokens/min` },
  { name: "concurrency", label: "Requests at once", short: (value) => `${value} at once` },
  { name: "queue_timeout", label: "Longest wait in the queue (s)", short: (value) => `${value} s in the queue`, step: "any" },
  { name: "default_max_tokens", label: "Default length of answers (tokens)", short: (value) => `${value} tokens by default` },
  { name: "weight", label: "Weight", short: (value) => `weight ${value}`, max: 100, none: "1", hint: "Share in fair queueing. The keys of a team divide the share of the team in proportion to theirs." },
];

// Keys and teams by their id, as this page has read them last.
export const known = observable({});

const number = (value) => value.toLocaleString();

/** An id, after the name that it has. */
export function Named({ id }) {
  const { name } = useObservable(known)[id] ?? {};
  return html`${name && html`${name} `}<code>${id}</code>`;
}

function Budget({ name, used, of }) {
  if (of === null) return number(used);
  return html`<span class=${used / of >= WARNING ? "warning" : ""}>
    <meter aria-label=${`Tokens of ${name}`} min="0" max=${of} high=${of * WARNING} optimum="0" value=${used}></meter>
    ${number(used)} of ${number(of)}
  </span>`;
}

function row(entry, cells, ending, edit, end) {
  const name = entry.name || entry.id;
  const limits = LIMITS.filter(({ short, name: field }) => short && entry[field] !== null).map(({ short, name: field }) => short(number(entry[field])));
  return {
    key: entry.id,
    cells: [
      html`${entry.name && html`${entry.name}<br />`}<code>${entry.id}</code>`,
      ...cells,
      html`<${Budget} name=${`${name} today`} used=${entry.tokens_used_today} of=${entry.tokens_per_day} />`,
      html`<${Budget} name=${`${name} this month`} used=${entry.tokens_used_this_month} of=${entry.tokens_per_month} />`,
      limits.join(", ") || "none",
      html`<span class="actions">
        <${RowButton} verb="Edit" of=${name} act=${edit} />
        <${RowButton} verb=${ending.verb} of=${name} danger act=${() => confirm(`${ending.verb} ${name}? ${ending.warning}`) && end()} />
      </span>`,
    ],
  };
}

// The form of a new record, or of changes of `entry`. `send` takes the body, and returns whether it was accepted.
function Form({ noun, entry, inputs, body, error, send, close }) {
  const [fields, setFields] = useState(entry ?? {});
  const set = (name) => ({ target }) => setFields({ ...fields, [name]: target.type === "checkbox" ? target.checked : target.value });
  const submit = async (event) => {
    event.preventDefault();
    const limits = LIMITS.map(({ name }) => [name, fields[name] ? Number(fields[name]) : null]);
    const wanted = [...Object.entries(body(fields, entry)), ...limits].filter(([name, value]) => value !== (entry?.[name] ?? null));
    if (!wanted.length || (await send(Object.fromEntries(wanted)))) close();
  };
  return html`<${Drawer} title=${entry ? `Edit ${entry.name || entry.id}` : `New ${noun}`} close=${close}>
    <form class="record-form" onSubmit=${submit}>
      ${inputs(fields, set, entry)}
      ${LIMITS.map(
        ({ name, label, hint, step = "1", max, none = "no limit" }) => html`<label key=${name}>
          ${label} <input type="number" min=${step === "1" ? 1 : 0} max=${max} step=${step} placeholder=${none} value=${fields[name] ?? ""} onInput=${set(name)} />
          ${hint && html`<small>${hint}</small>`}
        </label>`,
      )}
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <button type="submit">${entry ? "Save" : `Create ${noun}`}</button>
    </form>
  </${Drawer}>`;
}

/** The section of a kind of records.
 * @param {object} props
 * @param {string} props.title @param {string} props.noun
 * @param {string} props.path of the list, a record's being below @param {string} [props.query] of the list
 * @param {string[]} props.heads of the first column, and of those of the kind
 * @param {(entry: object) => any[]} props.cells of the columns of the kind
 * @param {(fields: object, set: (name: string) => (event: Event) => void, entry?: object) => any} props.inputs of the
 *   form of a new record or of `entry`, before those of limits
 * @param {(fields: object, entry?: object) => object} props.body what the inputs set
 * @param {{verb: string, warning: string, end: (id: string) => Promise<any>}} props.ending
 * @param {any} [props.empty] stands in the place of an empty table
 * @param {boolean} [props.silent] hides the section while its list can't be read
 * @param {(record: object) => void} [props.then] takes a new record */
export function Records({ title, noun, path, query = "", heads, cells, inputs, body, ending, empty, silent, then }) {
  const { found, error, act, more } = useListed(`${path}?limit=100${query}`);
  const [open, setOpen] = useState(null); // {} for a new record, {entry} for changes of one
  useEffect(() => found && known.set({ ...known.get(), ...Object.fromEntries(found.data.map((entry) => [entry.id, entry])) }), [found]);
  if (silent && !found) return null;
  const send = async (wanted) => {
    const done = await act(() => call(open.entry ? `${path}/${encodeURIComponent(open.entry.id)}` : path, { method: "POST", body: wanted }));
    if (done && !open.entry) then?.(done);
    return done !== null;
  };
  const shown = found?.data.filter(({ status }) => status !== "archived");
  return html`<${Section}
    title=${title}
    error=${open ? "" : error}
    aside=${found && html`<button type="button" onClick=${() => setOpen({})}>New ${noun}</button>`}
  >
    ${shown?.length === 0 && empty}
    ${(shown?.length > 0 || more) &&
    html`<${Table}
      label=${`Table of ${title}`}
      heads=${[...heads, "Tokens today", "Tokens this month", "Other limits", "Actions"]}
      rows=${shown.map((entry) => row(entry, cells(entry), ending, () => setOpen({ entry }), () => act(() => ending.end(entry.id))))}
      more=${more}
    />`}
    ${open && html`<${Form} noun=${noun} entry=${open.entry} inputs=${inputs} body=${body} error=${error} send=${send} close=${() => setOpen(null)} />`}
  </${Section}>`;
}
