// Asks a service through Ollama's official client.
import { Ollama } from "ollama";

const [host, model, call] = process.argv.slice(2);
const ollama = new Ollama({ host });
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];
const calls = (parts) => parts.flatMap((part) => part.message.tool_calls ?? []).map((made) => made.function.arguments);

const results = { names: (await ollama.list()).models.map((one) => one.model) };
for (const [name, content] of Object.entries({ text: "Hello", call })) {
  const asked = { model, messages: [{ role: "user", content }], tools, options: { num_predict: 100 } };
  const whole = await ollama.chat(asked);
  const parts = [];
  for await (const part of await ollama.chat({ ...asked, stream: true })) parts.push(part);
  const text = parts.map((part) => part.message.content).join("");
  results[name] = { same: text === whole.message.content, whole: calls([whole]), streamed: calls(parts), reason: parts.at(-1).done_reason };
}
results.refused = await ollama.pull({ model }).catch((error) => error.message);
console.log(JSON.stringify(results));
