// Models of a catalogue: load and unload.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { RowButton, Section, Table, call, useListed } from "./section.js";

export function Models() {
  const { found, error, act } = useListed(() => call("v1/models"));
  const listed = found?.data.filter(({ status }) => status) ?? [];
  if (!listed.length) return null;
  const change = (id, what) => act(() => call(`v1/models/${encodeURIComponent(id)}/${what}`, { method: "POST", body: {} }));
  return html`<${Section} title="Models of the catalogue" error=${error}>
    <${Table}
      label="Table of models"
      heads=${["Model", "Status", "Actions"]}
      rows=${listed.map(({ id, status: { value } }) => {
        const what = value === "loaded" || value === "loading" ? "unload" : "load";
        return { key: id, cells: [id, value, html`<${RowButton} verb=${what === "load" ? "Load" : "Unload"} of=${id} act=${() => change(id, what)} />`] };
      })}
    />
  </${Section}>`;
}
