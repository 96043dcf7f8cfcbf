// The batches of the key: progress, and cancelling.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { RowButton, Section, Table, call, useListed } from "./section.js";

const OPEN = new Set(["validating", "in_progress", "finalizing"]);

function row({ id, status, created_at: created, request_counts: { total, completed, failed } }, cancel) {
  const lines = html`<progress aria-label=${`Progress of ${id}`} max=${Math.max(1, total)} value=${completed + failed}></progress>
    ${completed + failed} of ${total}${failed > 0 && `, ${failed} failed`}`;
  const button = OPEN.has(status) && html`<${RowButton} verb="Cancel" of=${id} danger act=${cancel} />`;
  return { key: id, cells: [html`<code>${id}</code>`, new Date(created * 1000).toLocaleString(), status.replace("_", " "), lines, button] };
}

export function Batches() {
  const { found, error, act, more } = useListed("v1/batches?limit=20");
  const cancel = (id) => act(() => call(`v1/batches/${encodeURIComponent(id)}/cancel`, { method: "POST" }));
  return html`<${Section} title="Batches of this key" error=${error}>
    ${found?.data.length === 0 && html`<p class="faint">None. <code>vinoqueue batch</code> and every client of the Batch API make one.</p>`}
    ${found?.data.length > 0 &&
    html`<${Table}
      label="Table of batches"
      heads=${["Batch", "Created", "Status", "Lines", "Actions"]}
      rows=${found.data.map((batch) => row(batch, () => cancel(batch.id)))}
      more=${more}
    />`}
  </${Section}>`;
}
