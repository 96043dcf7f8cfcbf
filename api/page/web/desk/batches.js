// The batches of the key: progress, and cancelling.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { Section, Table, call, useListed } from "./section.js";

const OPEN = new Set(["validating", "in_progress", "finalizing"]);

export function Batches() {
  const { found, error, act } = useListed(() => call("v1/batches?limit=20"));
  const cancel = (id) => act(() => call(`v1/batches/${id}/cancel`, { method: "POST" }));
  return html`<${Section} title="Batches of this key" error=${error}>
    ${found?.data.length === 0 && html`<p class="faint">None.</p>`}
    ${found?.data.length > 0 &&
    html`<${Table}
      label="Table of batches"
      heads=${["Batch", "Status", "Lines", "Actions"]}
      rows=${found.data.map(
        ({ id, status, request_counts: { total, completed, failed } }) => html`<tr key=${id}>
          <th scope="row"><code>${id}</code></th>
          <td>${status}</td>
          <td>${completed + failed} of ${total}${failed > 0 && `, ${failed} failed`}</td>
          <td>${OPEN.has(status) && html`<button type="button" class="quiet" onClick=${() => cancel(id)}>Cancel ${id}</button>`}</td>
        </tr>`,
      )}
    />`}
  </${Section}>`;
}
