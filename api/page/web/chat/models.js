// The served models, and what state each is in.

import { useEffect } from "../vendor/htm-preact-3.1.1.js";
import { apiKey, listModels } from "../api.js";
import { fleet } from "../fleet/feed.js";
import { loadState } from "../format.js";
import { observable, useObservable } from "../state.js";

const MODELS_MS = 10_000;
const NONE_MS = 2000;

// {served: the models; problem: why they are not known; closed: whether a key is missing or wrong}
const models = observable({ served: [], problem: "", closed: false });

async function load() {
  if (document.hidden) return;
  try {
    const all = await listModels();
    models.set({ served: all.filter(({ kinds }) => !kinds || kinds.includes("generate")), problem: "", closed: false });
  } catch (error) {
    const closed = error.status === 401;
    const problem = closed && !apiKey.get() ? "This service needs an API key. Enter yours in the side bar." : error.message;
    models.set({ served: [], problem, closed });
  }
}

export function useModels() {
  const key = useObservable(apiKey);
  useEffect(() => {
    load();
    const none = () => !models.get().served.length && !models.get().closed;
    const timers = [setInterval(load, MODELS_MS), setInterval(() => none() && load(), NONE_MS)];
    return () => timers.forEach(clearInterval);
  }, [key]);
  return useObservable(models);
}

// The fleet's entry of a model, if this key may see the fleet.
export function useFleetEntry(model) {
  const { document } = useObservable(fleet);
  return document?.models.find(({ id, aliases }) => id === model || aliases.includes(model));
}

/** Returns what a model with this entry of `/v1/models` does now: "" where it is ready.
 * @param {{status?: {value: string}} | undefined} model */
export const stateOf = (model) => loadState(model?.status?.value);
