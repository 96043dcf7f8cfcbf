// An answer from its request to its end: complete, stopped or failed.

import { complete } from "./completion.js";
import { untilFreed } from "../fleet/feed.js";

// Calls `show` with changed fields of the answer, which `read` returns. Never rejects.
export async function completion(body, signal, show, read) {
  try {
    await complete(body, { signal, show });
  } catch (error) {
    if (!signal.aborted) {
      show({ queue: null, error: error.message, code: error.code ?? null });
      return;
    }
    show({ queue: null, stopped: true });
    const seconds = await untilFreed(read()?.job);
    if (seconds !== null) show({ freed: seconds });
  }
}
