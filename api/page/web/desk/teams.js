// Teams: groups of keys, which OpenAI's API has as projects.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { Records } from "./records.js";
import { call } from "./section.js";

const PATH = "v1/organization/projects";
const ENDING = { verb: "Archive", warning: "Its keys are refused from then on.", end: (id) => call(`${PATH}/${encodeURIComponent(id)}/archive`, { method: "POST" }) };

export function Teams() {
  return html`<${Records}
    title="Teams"
    noun="team"
    path=${PATH}
    query="&include_archived=true"
    heads=${["Team"]}
    cells=${() => []}
    inputs=${({ name = "" }, set) => html`<label>Name <input required maxlength="200" value=${name} onInput=${set("name")} /></label>`}
    body=${({ name = "" }) => ({ name: name.trim() })}
    ending=${ENDING}
    empty=${html`<p class="faint">None. A team is a group of keys with limits of its own.</p>`}
    silent
  />`;
}
