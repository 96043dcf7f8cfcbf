// Messages and settings as a browser or a file has kept them: members of another form are dropped one by one.

export const DEFAULTS = {
  model: "",
  system: "",
  temperature: "",
  topP: "",
  topK: "",
  minP: "",
  maxTokens: "1024",
  seed: "",
  schema: "",
  tools: "",
  tier: "",
  effort: "",
};

const isText = (value) => typeof value === "string";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isFlag = (value) => typeof value === "boolean";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const members = (value, isGood) => (Array.isArray(value) ? value.filter(isGood) : undefined);
const fields = (value, checks) =>
  isObject(value) ? Object.fromEntries(Object.entries(checks).flatMap(([name, check]) => (check(value[name]) ? [[name, value[name]]] : []))) : {};

const STATS = { firstToken: isNumber, perSecond: isNumber, tokens: isNumber, promptTokens: isNumber, reasoning: isNumber };
const MESSAGE = {
  model: isText, reasoning: isText, error: isText, code: isText, finish: isText, stopped: isFlag, freed: isNumber,
};

// What an answer that is not complete needs to be followed.
const RUN = {
  pending: isFlag,
  job: isText,
  seen: isNumber,
  response: (value) => isText(value) && /^resp_[0-9a-f]{32}$/.test(value),
};

/** Returns settings whose fields are texts; those of another form have their default.
 * @param {unknown} kept @returns {object} */
export const keptSettings = (kept) => ({ ...DEFAULTS, ...fields(kept, Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, isText]))) });

/** Returns a message without members of another form. Its id and its parent are checked by whoever has the others.
 * @param {object} kept @returns {object} */
export function keptMessage(kept) {
  const { id, parent, role, text, settings, images, files, calls, stats, attempts } = kept;
  const lists = {
    images: members(images, (url) => isText(url) && url.startsWith("data:image/")),
    files: members(files, (file) => isText(file?.name) && isText(file?.text)),
    calls: members(calls, (call) => isText(call?.name) && isText(call?.arguments)),
    attempts: members(attempts, (attempt) => isNumber(attempt?.number) && isText(attempt?.cause)),
    stats: isObject(stats) ? fields(stats, STATS) : undefined,
    settings: isObject(settings) ? keptSettings(settings) : undefined,
  };
  return {
    id,
    parent,
    role: role === "user" ? "user" : "assistant",
    text: isText(text) ? text : "",
    ...fields(kept, MESSAGE),
    ...fields(kept, RUN),
    ...Object.fromEntries(Object.entries(lists).filter(([, value]) => value !== undefined)),
  };
}

/** Returns a message that nobody follows: what another browser was doing with it does not concern this one.
 * @param {object} message @returns {object} */
export function settled(message) {
  const { pending, job, seen, response, ...rest } = message;
  return pending ? { ...rest, error: rest.error ?? "The answer was not complete when it was exported." } : rest;
}
