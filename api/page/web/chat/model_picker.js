// The model of a conversation, with what state each model is in.

import { html } from "../vendor/htm-preact-3.1.1.js";
import { fleet } from "../fleet/feed.js";
import { useObservable } from "../state.js";
import { configure } from "./chats.js";
import { stateOf, useFleetEntry } from "./models.js";

function Load({ model }) {
  const entry = useFleetEntry(model);
  if (!entry) return null;
  const waiting = entry.tiers.reduce((sum, tier) => sum + tier.waiting, 0);
  return html`<span class="load">${entry.used} of ${entry.slots} slots in use${waiting > 0 && `, ${waiting} waiting`}</span>`;
}

/** @param {{models: {id: string, status?: {value: string}}[], chosen: string}} props */
export function ModelPicker({ models, chosen }) {
  const found = models.find(({ id }) => id === chosen);
  const state = stateOf(found);
  const loading = useObservable(fleet).document?.workers.find(({ status }) => status === "loading");
  return html`<div class="model-picker">
    <span class=${`dot ${found ? (state ? "warn" : "good") : "bad"}`} aria-hidden="true"></span>
    <select aria-label="Model" value=${chosen} onChange=${(event) => configure({ model: event.target.value })}>
      ${!found && html`<option value=${chosen}>${chosen || (loading ? `${loading.model} is loading` : "No model is served")}</option>`}
      ${models.map((one) => html`<option key=${one.id} value=${one.id}>${stateOf(one) ? `${one.id} (${stateOf(one)})` : one.id}</option>`)}
    </select>
    <${Load} model=${chosen} />
  </div>`;
}
