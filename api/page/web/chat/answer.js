// One answer: a background response of the Responses API, which goes on while the page is closed, and is followed again
// when it opens. The service keeps it until the page has all of it.

import { ApiError, request, serverSentEvents } from "../api.js";
import { untilFreed } from "../fleet/feed.js";

const SHOW_MS = 40;
const RETRY_MS = 1000;
const RETRIES = 60;
const HEADERS = { "x-queue-events": "true" };
const ENDS = new Set(["response.completed", "response.incomplete", "response.failed", "error"]);

/** An answer as it grows. `message` may be the beginning of one, whose events up to the number `seen` are in it. */
class Growing {
  constructor(message, show, keep) {
    this.seen = message.seen ?? -1;
    this.response = message.response ?? null;
    this.resumed = this.response !== null;
    this.accepted = this.resumed;
    this.ended = false;
    this.fields = { text: message.text, reasoning: message.reasoning ?? "", calls: message.calls ?? [] };
    this.stats = { ...message.stats };
    this.attempts = message.attempts ?? [];
    this.began = performance.now();
    this.show = show;
    this.keep = keep;
    this.timer = 0;
  }

  // Shows changed fields, those that change with each token not more often than the screen needs.
  changed(fields) {
    Object.assign(this.fields, fields);
    this.timer ||= setTimeout(() => this.flush(), SHOW_MS);
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.show({ ...this.fields, seen: this.seen, stats: { ...this.stats } });
  }

  comment({ queue, attempt }) {
    if (queue) this.show({ job: queue.request, ...(this.first === undefined && { queue }) });
    if (!attempt || this.attempts.some(({ number }) => number === attempt.number)) return;
    this.attempts = [...this.attempts, attempt];
    this.show({ attempts: this.attempts });
  }

  arrived() {
    if (this.first !== undefined) return;
    this.first = performance.now();
    if (!this.resumed) this.stats.firstToken = (this.first - this.began) / 1000;
    this.show({ queue: null });
  }

  reasoned() {
    if (!this.fields.reasoning || this.stats.reasoning !== undefined || this.resumed) return;
    this.stats.reasoning = (performance.now() - this.first) / 1000;
  }

  take(event) {
    this.seen = event.sequence_number ?? this.seen;
    const { type, delta } = event;
    if (type === "response.created") {
      this.accepted = true;
      // Only a background response can be followed again.
      if (event.response.background) this.response = event.response.id;
      this.show({ response: this.response, seen: this.seen });
      this.keep(); // At once: a page that is closed now goes on with it later.
    } else if (type === "response.output_text.delta") {
      this.arrived();
      this.reasoned();
      this.changed({ text: this.fields.text + delta });
    } else if (type === "response.reasoning_text.delta") {
      this.arrived();
      this.changed({ reasoning: this.fields.reasoning + delta });
    } else if (type === "response.output_item.added" && event.item.type.endsWith("_call")) {
      this.arrived();
      this.reasoned();
      this.changed({ calls: [...this.fields.calls, { name: event.item.name, arguments: "" }] });
    } else if (type === "response.function_call_arguments.delta" || type === "response.custom_tool_call_input.delta") {
      const last = this.fields.calls.at(-1);
      this.changed({ calls: [...this.fields.calls.slice(0, -1), { ...last, arguments: last.arguments + delta }] });
    } else if (ENDS.has(type)) {
      this.end(event);
    }
  }

  end({ response, error = response?.error }) {
    this.ended = true;
    this.flush();
    if (error) throw new ApiError(error.message, 200, error.code);
    const { usage, incomplete_details: incomplete } = response;
    this.stats.tokens = usage?.output_tokens;
    this.stats.promptTokens = usage?.input_tokens;
    const seconds = this.first === undefined ? 0 : (performance.now() - this.first) / 1000;
    if (!this.resumed && this.stats.tokens > 1 && seconds > 0) this.stats.perSecond = (this.stats.tokens - 1) / seconds;
    this.show({ finish: incomplete ? "length" : "stop", stats: { ...this.stats } });
  }
}

async function created(body, signal) {
  const post = (fields) => request("v1/responses", { method: "POST", body: { ...body, ...fields }, headers: HEADERS, signal });
  try {
    return await post({ background: true, store: true });
  } catch (error) {
    // Too large to be stored, as with images: it can't be followed again.
    if (error.status !== 413) throw error;
    return post({ store: false });
  }
}

const followed = ({ response, seen }, signal) =>
  request(`v1/responses/${encodeURIComponent(response)}?stream=true${seen < 0 ? "" : `&starting_after=${seen}`}`, { headers: HEADERS, signal });

async function read(growing, body, signal) {
  const wait = () => new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  for (let left = RETRIES; ; left--) {
    try {
      const stream = growing.response === null ? await created(body, signal) : await followed(growing, signal);
      for await (const { data, comment } of serverSentEvents(stream)) {
        left = RETRIES;
        if (comment !== undefined) growing.comment(JSON.parse(comment));
        else growing.take(JSON.parse(data));
      }
      if (growing.ended) return;
    } catch (error) {
      const lost = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
      if (signal.aborted || growing.ended || !lost || growing.response === null || left === 0) throw error;
    }
    if (growing.response === null) throw new ApiError("The connection to the server was lost.", 0);
    await wait();
  }
}

const forget = (response) => request(`v1/responses/${encodeURIComponent(response)}`, { method: "DELETE" }).catch(() => {});

/** Makes or follows an answer to its end: complete, stopped or failed. Never rejects.
 * @param {object} message the answer so far @param {object} body its request
 * @param {AbortSignal} signal stops it, which frees the slot of the worker
 * @param {{show: (fields: object) => void, current: () => object, keep: () => Promise<void>, ended: () => Promise<object | null>}} place
 * `show` takes changed fields of the answer, `current` returns it, `keep` stores it, and `ended` returns it from there if
 * another tab has followed it to its end, and so deleted it from the service. */
export async function answer(message, body, signal, { show, current, keep, ended }) {
  const connection = new AbortController();
  const shown = (fields) => {
    show(fields);
    if (signal.aborted && growing.accepted) connection.abort();
  };
  const growing = new Growing(message, shown, keep);
  // Before its id is known, a response could not be deleted.
  signal.addEventListener("abort", () => growing.accepted && connection.abort());
  try {
    await read(growing, body, connection.signal);
  } catch (error) {
    growing.flush();
    const elsewhere = signal.aborted ? null : await ended();
    if (elsewhere) show(elsewhere);
    else if (signal.aborted) show({ stopped: true });
    else show({ error: error.message, code: error.code ?? null });
  }
  show({ queue: null, response: null, pending: false });
  await keep();
  if (growing.response !== null) await forget(growing.response);
  if (!signal.aborted) return;
  const seconds = await untilFreed(current()?.job);
  if (seconds !== null) show({ freed: seconds });
}
