// The workers of the fleet: drain and resume.

import { fleet } from "../fleet/feed.js";
import { useObservable } from "../state.js";
import { html } from "../vendor/htm-preact-3.1.1.js";
import { Section, Table, call, useAction } from "./section.js";

const COMMANDS = { serving: "drain", draining: "resume" };

export function Workers() {
  const workers = useObservable(fleet).document?.workers ?? [];
  const { error, act } = useAction();
  if (!workers.length) return null;
  const command = (id, word) => act(() => call(`v1/fleet/workers/${encodeURIComponent(id)}/${word}`, { method: "POST" }));
  return html`<${Section} title="Workers" error=${error}>
    <${Table}
      label="Table of workers"
      heads=${["Worker", "Model", "Status", "Requests", "Actions"]}
      rows=${workers.map(({ id, model, status, used, slots }) => {
        const word = COMMANDS[status];
        return html`<tr key=${id}>
          <th scope="row"><code>${id}</code></th>
          <td>${model}</td>
          <td>${status}</td>
          <td>${used} of ${slots}</td>
          <td>${word && html`<button type="button" class="quiet" onClick=${() => command(id, word)}>${word === "drain" ? "Drain" : "Resume"} ${id}</button>`}</td>
        </tr>`;
      })}
    />
  </${Section}>`;
}
