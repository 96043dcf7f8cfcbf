// Numbers as people read them.

export const seconds = (value) => (value < 10 ? `${value.toFixed(2)} s` : `${Math.round(value)} s`);

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const unit = bytes < 1e6 ? ["kB", 1e3] : bytes < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  const value = bytes / unit[1];
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit[0]}`;
}

export const percent = (value) => `${Math.round(value * 100)} %`;

const LOADING = { loading: "is loading", unloading: "is being unloaded", unloaded: "loads when asked", failed: "failed to load" };

/** Returns what a model of a catalogue does now: "" where it is ready.
 * @param {string | undefined} status */
export const loadState = (status) => LOADING[status] ?? "";

/** Returns why a model of a catalogue is in its state, for each node that says so.
 * @param {{host: string, models: {name: string, detail?: string}[]}[]} nodes @param {string} id */
export const reasons = (nodes, id) =>
  nodes.flatMap(({ host, models }) => models.filter(({ name, detail }) => name === id && detail).map(({ detail }) => `${host}: ${detail}`)).join("; ");
