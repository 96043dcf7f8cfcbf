// The workers of the fleet: drain and resume.

import { fleet } from "../fleet/feed.js";
import { useObservable } from "../state.js";
import { html } from "../vendor/htm-preact-3.1.1.js";
import { RowButton, Section, Table, call, useAction } from "./section.js";

const COMMANDS = { serving: "drain", draining: "resume" };

export function Workers() {
  const workers = useObservable(fleet).document?.workers ?? [];
  const { error, act } = useAction();
  if (!workers.length) return null;
  const command = (id, word) => act(() => call(`v1/fleet/workers/${encodeURIComponent(id)}/${word}`, { method: "POST" }));
  return html`<${Section} title="Workers" error=${error}>
    <${Table}
      label="Table of workers"
      heads=${["Worker", "Host", "Model", "Status", "Slots in use", "Actions"]}
      rows=${workers.map(({ id, host, model, status, used, slots }) => {
        const word = COMMANDS[status];
        const button = word && html`<${RowButton} verb=${word === "drain" ? "Drain" : "Resume"} of=${id} act=${() => command(id, word)} />`;
        return { key: id, cells: [html`<code>${id}</code>`, host, model, html`<span class=${`status ${status}`}>${status}</span>`, `${used} of ${slots}`, button] };
      })}
    />
  </${Section}>`;
}
