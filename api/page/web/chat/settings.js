// The settings of a conversation, in a drawer: presets, system prompt, sampling, form of the answer and tools.

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { Drawer } from "../drawer.js";
import { IconButton } from "../icons.js";
import { recall, remember } from "../state.js";
import { configure } from "./chats.js";
import { DEFAULTS } from "./kept.js";

const TIERS = ["priority", "default", "flex"];
const EFFORTS = ["none", "low", "medium", "high"];

const SAMPLING = [
  { name: "temperature", label: "Temperature", step: "0.1", min: "0", max: "2", hint: "0 always takes the likeliest token; higher values vary more." },
  { name: "topP", label: "Top p", step: "0.05", min: "0", max: "1", hint: "Only the likeliest tokens whose probabilities add up to this." },
  { name: "topK", label: "Top k", step: "1", min: "0", hint: "Only this many of the likeliest tokens; 0 takes all." },
  { name: "minP", label: "Min p", step: "0.01", min: "0", max: "1", hint: "Only tokens at least this likely, relative to the likeliest." },
  { name: "maxTokens", label: "Max tokens", step: "1", min: "1", hint: "The answer is cut off here, reasoning included." },
  { name: "seed", label: "Seed", step: "1", hint: "The same seed gives the same random choices." },
];

const write = (name) => (event) => configure({ [name]: event.target.value });

function Field({ name, label, hint, children }) {
  return html`<div class="field">
    <label for=${`setting-${name}`}>${label}</label>
    ${children({ id: `setting-${name}`, "aria-describedby": `hint-${name}`, name, onInput: write(name) })}
    <small id=${`hint-${name}`}>${hint}</small>
  </div>`;
}

function Area({ settings, name, label, hint, placeholder = "none", code = false }) {
  return html`<${Field} name=${name} label=${label} hint=${hint}>
    ${(common) => html`<textarea ...${common} rows="3" class=${code ? "code" : ""} spellcheck=${!code} placeholder=${placeholder} value=${settings[name]}></textarea>`}
  </${Field}>`;
}

function Choice({ settings, name, label, hint, values }) {
  return html`<${Field} name=${name} label=${label} hint=${hint}>
    ${(common) => html`<select ...${common} value=${settings[name]}>
      ${["", ...values].map((one) => html`<option key=${one} value=${one}>${one || "default"}</option>`)}
    </select>`}
  </${Field}>`;
}

// Named settings without their model.
function Presets({ settings }) {
  const [presets, setPresets] = useState(recall("presets", {}));
  const [name, setName] = useState("");
  const keep = (next) => {
    remember("presets", next);
    setPresets(next);
  };
  const apply = (chosen) => {
    setName(chosen);
    if (chosen) configure({ ...DEFAULTS, ...presets[chosen], model: settings.model });
  };
  const save = (event) => {
    event.preventDefault();
    if (name.trim()) keep({ ...presets, [name.trim()]: settings });
  };
  const remove = () => {
    const { [name.trim()]: _, ...rest } = presets;
    keep(rest);
    setName("");
  };
  const names = Object.keys(presets).sort();
  return html`<form class="presets" onSubmit=${save}>
    <div class="field">
      <label for="preset">Preset</label>
      <select id="preset" value=${name in presets ? name : ""} onChange=${(event) => apply(event.target.value)}>
        <option value="">${names.length ? "none" : "none saved"}</option>
        ${names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </div>
    <div class="field">
      <label for="preset-name">Name</label>
      <input id="preset-name" value=${name} placeholder="such as: translator" onInput=${(event) => setName(event.target.value)} />
    </div>
    <button type="submit" class="second" disabled=${!name.trim()}>Save preset</button>
    ${name in presets && html`<${IconButton} icon="delete" label="Delete the preset" onClick=${remove} />`}
  </form>`;
}

export function Settings({ settings, close }) {
  return html`<${Drawer} title="Settings" close=${close}>
    <${Presets} settings=${settings} />
    <${Area} settings=${settings} name="system" label="System prompt" hint="Tells the model what it is for, before the first message." />
    <h3>Sampling and length</h3>
    <div class="numbers">
      ${SAMPLING.map(
        ({ name, label, hint, ...limits }) => html`<${Field} key=${name} name=${name} label=${label} hint=${hint}>
          ${(common) => html`<input ...${common} ...${limits} type="number" inputmode="decimal" placeholder="default" value=${settings[name]} />`}
        </${Field}>`,
      )}
      <${Choice} settings=${settings} name="effort" label="Reasoning effort" values=${EFFORTS} hint="For models that reason before they answer." />
      <${Choice} settings=${settings} name="tier" label="Service tier" values=${TIERS} hint="Who goes first in the queue; flex waits for all others." />
    </div>
    <h3>Form of the answer</h3>
    <${Area} settings=${settings} name="schema" label="JSON schema" hint="The answer is JSON that is valid under this schema." placeholder='{"type": "object", …}' code />
    <${Area} settings=${settings} name="tools" label="Tools" hint="A JSON array of functions that the model may call. The page shows the calls and does not run them." placeholder='[{"type": "function", …}]' code />
    <button type="button" class="second" onClick=${() => configure({ ...DEFAULTS, model: settings.model })}>Reset all to the defaults</button>
  </${Drawer}>`;
}
