// The desk: keys, usage, workers, models and batches, for whoever has a key with the scope `admin`.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { Audit } from "./audit.js";
import { Batches } from "./batches.js";
import { Keys } from "./keys.js";
import { Models } from "./models.js";
import { Teams } from "./teams.js";
import { Usage } from "./usage.js";
import { Workers } from "./workers.js";

export function Desk({ opener }) {
  return html`<main class="view">
    <div class="bar">${opener}<h1>Desk</h1></div>
    <div class="fleet">
      <div class="width"><${Usage} /><${Keys} /><${Teams} /><${Workers} /><${Models} /><${Batches} /><${Audit} /></div>
    </div>
  </main>`;
}
