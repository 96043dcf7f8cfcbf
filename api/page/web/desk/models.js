// Models of a catalogue: load and unload.

import { fleet } from "../fleet/feed.js";
import { reasons } from "../format.js";
import { useObservable } from "../state.js";
import { html } from "../vendor/htm-preact-3.1.1.js";
import { RowButton, Section, Table, call, useAction } from "./section.js";

export function Models() {
  const { models = [], nodes = [] } = useObservable(fleet).document ?? {};
  const listed = models.filter(({ state }) => state);
  const { error, act } = useAction();
  if (!listed.length) return null;
  const change = (id, what) => act(() => call(`v1/models/${encodeURIComponent(id)}/${what}`, { method: "POST", body: {} }));
  return html`<${Section} title="Models of the catalogue" error=${error}>
    <${Table}
      label="Table of models"
      heads=${["Model", "Status", "Why", "Actions"]}
      rows=${listed.map(({ id, state }) => {
        const what = state === "loaded" || state === "loading" ? "unload" : "load";
        return { key: id, cells: [id, state, reasons(nodes, id), html`<${RowButton} verb=${what === "load" ? "Load" : "Unload"} of=${id} act=${() => change(id, what)} />`] };
      })}
    />
  </${Section}>`;
}
