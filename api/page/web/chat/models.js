// The served models, and what state each is in.

import { useEffect } from "../vendor/htm-preact-3.1.1.js";
import { apiKey, listModels } from "../api.js";
import { fleet } from "../fleet/feed.js";
import { loadState } from "../format.js";
import { observable, useObservable } from "../state.js";
import { notify } from "./chats.js";

const MODELS_MS = 10_000;

const models = observable([]);

async function load() {
  if (document.hidden) return;
  try {
    models.set(await listModels());
  } catch (error) {
    models.set([]);
    notify(error.status === 401 ? "This service needs an API key. Enter yours in the side bar." : error.message);
  }
}

export function useModels() {
  const key = useObservable(apiKey);
  useEffect(() => {
    notify("");
    load();
    const timer = setInterval(load, MODELS_MS);
    return () => clearInterval(timer);
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
