// One streamed chat completion: from the request body to text, reasoning, tool calls and figures.

import { ApiError, request, serverSentEvents } from "../api.js";

// Calls `show` with changed fields of the answer. Resolves when the stream is complete. Raises ApiError, and AbortError
// when `signal` stops it, which frees the slot of the worker.
export async function complete(body, { signal, show }) {
  const began = performance.now();
  let first = null;
  let text = "";
  let reasoning = "";
  const calls = [];
  const stats = {};

  function arrived() {
    if (first !== null) return;
    first = performance.now();
    stats.firstToken = (first - began) / 1000;
    show({ queue: null, stats: { ...stats } });
  }

  function take(chunk) {
    if (chunk.error) throw new ApiError(chunk.error.message, 200, chunk.error.code);
    if (chunk.usage) {
      stats.tokens = chunk.usage.completion_tokens;
      stats.promptTokens = chunk.usage.prompt_tokens;
    }
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const { content, reasoning_content: thought, tool_calls: deltas } = choice.delta;
    if (thought) {
      arrived();
      reasoning += thought;
      show({ reasoning });
    }
    if (content) {
      arrived();
      text += content;
      show({ text });
    }
    for (const delta of deltas ?? []) {
      arrived();
      const call = (calls[delta.index] ??= { name: "", arguments: "" });
      call.name += delta.function?.name ?? "";
      call.arguments += delta.function?.arguments ?? "";
      show({ calls: calls.map((one) => ({ ...one })) });
    }
    if (choice.finish_reason) show({ finish: choice.finish_reason });
  }

  const response = await request("v1/chat/completions", {
    method: "POST",
    body,
    signal,
    headers: { "x-queue-events": "true" },
  });
  for await (const { data, comment } of serverSentEvents(response)) {
    if (comment !== undefined) {
      const { queue } = JSON.parse(comment);
      if (first === null) show({ queue, job: queue.request });
    } else if (data !== "[DONE]") {
      take(JSON.parse(data));
    }
  }
  const seconds = first === null ? 0 : (performance.now() - first) / 1000;
  if (stats.tokens > 1 && seconds > 0) stats.perSecond = (stats.tokens - 1) / seconds;
  stats.seconds = (performance.now() - began) / 1000;
  show({ queue: null, stats });
}
