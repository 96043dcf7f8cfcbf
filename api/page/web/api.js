// Requests to the API. The key is kept for this tab only, and is sent in a header.

import { observable } from "./state.js";

const KEY = "vinoqueue.key";

export const apiKey = observable(sessionStorage.getItem(KEY) ?? "");

apiKey.listen((key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY)));

export class ApiError extends Error {
  constructor(message, status, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The base address, under which the page is served too.
export const base = new URL(".", document.baseURI).href;

export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const key = apiKey.get();
  let response;
  try {
    response = await fetch(new URL(path, base), {
      method,
      signal,
      cache: "no-store",
      credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key ? { authorization: `Bearer ${key}` } : {}),
        ...headers,
      },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server can't be reached.", 0);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response) {
  try {
    const { error } = await response.json();
    return new ApiError(error.message, response.status, error.code);
  } catch {
    return new ApiError(`The server answered with status ${response.status}.`, response.status);
  }
}

// Yields {data} for each server-sent event and {comment} for each comment.
export async function* serverSentEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data: ")) yield { data: line.slice(6) };
        else if (line.startsWith(": ")) yield { comment: line.slice(2) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function listModels() {
  const { data } = await (await request("v1/models")).json();
  return data;
}
