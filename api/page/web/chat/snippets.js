// The request of an answer as a shell command and as a Python program. The key stays out of both.

import { apiKey, base } from "../api.js";

const VARIABLE = "VINOQUEUE_API_KEY";

const quoted = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

export function asCurl(body) {
  const parts = [`curl -N ${quoted(`${base}v1/responses`)}`, "-H 'Content-Type: application/json'"];
  if (apiKey.get()) parts.push(`-H "Authorization: Bearer $${VARIABLE}"`);
  parts.push(`-d ${quoted(JSON.stringify(body, null, 2))}`);
  return parts.join(" \\\n  ");
}

function python(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((one) => `${inner}${python(one, inner)},\n`).join("")}${indent}]`;
  }
  const fields = Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${python(one, inner)},\n`);
  return fields.length ? `{\n${fields.join("")}${indent}}` : "{}";
}

// What the SDK has no parameters for.
const EXTRA = ["min_p", "seed", "top_k"];

export function asPython(body) {
  const key = apiKey.get() ? `os.environ["${VARIABLE}"]` : '"none"';
  const extra = Object.fromEntries(EXTRA.filter((name) => name in body).map((name) => [name, body[name]]));
  const fields = Object.entries({ ...body, ...(Object.keys(extra).length ? { extra_body: extra } : {}) });
  const named = fields.filter(([name]) => !(name in extra)).map(([name, value]) => `    ${name}=${python(value, "    ")},\n`);
  return `${apiKey.get() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${base}v1`)}, api_key=${key})
stream = client.responses.create(
${named.join("")})
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
`;
}
