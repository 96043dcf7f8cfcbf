// The settings of a conversation: model, system prompt, sampling, JSON schema and tools.

import { html } from "./vendor/htm-preact-3.1.1.js";
import { configure } from "./chats.js";

const TIERS = ["priority", "default", "flex"];
const EFFORTS = ["none", "low", "medium", "high"];

const text = (name) => (event) => configure({ [name]: event.target.value });

function NumberField({ label, name, settings, step, min, max }) {
  return html`<label>
    ${label}
    <input
      type="number"
      inputmode="decimal"
      step=${step}
      min=${min}
      max=${max}
      placeholder="default"
      value=${settings[name]}
      onInput=${text(name)}
    />
  </label>`;
}

function Area({ label, name, settings, placeholder, code = false }) {
  return html`<label>
    ${label}
    <textarea
      rows="3"
      class=${code ? "code" : ""}
      spellcheck=${!code}
      placeholder=${placeholder}
      value=${settings[name]}
      onInput=${text(name)}
    ></textarea>
  </label>`;
}

function Choice({ label, name, settings, values }) {
  return html`<label>
    ${label}
    <select value=${settings[name] ?? ""} onChange=${text(name)}>
      ${["", ...values].map((one) => html`<option key=${one} value=${one}>${one || "default"}</option>`)}
    </select>
  </label>`;
}

export function ModelField({ models, settings }) {
  const known = models.some(({ id }) => id === settings.model);
  return html`<label class="model">
    Model
    <select value=${settings.model} onChange=${text("model")}>
      ${!known && html`<option value=${settings.model}>${settings.model || "none"}</option>`}
      ${models.map(({ id }) => html`<option key=${id} value=${id}>${id}</option>`)}
    </select>
  </label>`;
}

export function Settings({ settings }) {
  return html`<details class="settings">
    <summary>Settings</summary>
    <div class="fields">
      <${Area} label="System prompt" name="system" settings=${settings} placeholder="none" />
      <div class="numbers">
        <${NumberField} label="Temperature" name="temperature" settings=${settings} step="0.1" min="0" max="2" />
        <${NumberField} label="Max tokens" name="maxTokens" settings=${settings} step="1" min="1" />
        <${NumberField} label="Seed" name="seed" settings=${settings} step="1" />
        <${Choice} label="Reasoning effort" name="effort" settings=${settings} values=${EFFORTS} />
        <${Choice} label="Service tier" name="tier" settings=${settings} values=${TIERS} />
      </div>
      <${Area} label="JSON schema of the answer" name="schema" settings=${settings} placeholder='{"type": "object", …}' code />
      <${Area} label="Tools (JSON)" name="tools" settings=${settings} placeholder='[{"type": "function", …}]' code />
    </div>
  </details>`;
}
