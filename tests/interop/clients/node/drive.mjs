// Node's official SDKs as clients: one tool loop each, streamed and not, through one address.
// Argument: {"url", "key", "proxy"?, "ca"?}; prints what each application sees and the bodies.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Agent, ProxyAgent, fetch as undiciFetch } from "undici";

const wire = JSON.parse(process.argv[2]);
const ca = wire.ca ? readFileSync(wire.ca, "utf8") : undefined;
const dispatcher = wire.proxy
  ? new ProxyAgent({ uri: wire.proxy, requestTls: { ca }, proxyTls: { ca } })
  : new Agent({ connect: { ca } });
const bodies = [];

async function keeping(address, options) {
  const response = await undiciFetch(address, { ...options, dispatcher });
  const position = bodies.push(null) - 1;
  const kept = response.clone();
  const read = kept.arrayBuffer().then((data) => {
    bodies[position] = {
      status: kept.status,
      headers: [...kept.headers.entries()],
      body: Buffer.from(data).toString("base64"),
    };
  });
  pending.push(read);
  return response;
}
const pending = [];

const schema = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
};
const question = "What is 19 + 23? Use the tool. Grüße 🙂";

async function openaiLoop(stream) {
  const api = new OpenAI({
    baseURL: `${wire.url.openai}/v1`,
    apiKey: wire.key,
    maxRetries: 0,
    fetch: keeping,
  });
  const messages = [{ role: "user", content: question }];
  const tools = [{ type: "function", function: { name: "add", parameters: schema } }];
  for (let turn = 0; turn < 2; turn += 1) {
    const request = { model: "tiny", messages, tools };
    const answer = stream
      ? await api.chat.completions.stream(request).finalChatCompletion()
      : await api.chat.completions.create(request);
    const message = answer.choices[0].message;
    messages.push(message);
    for (const call of message.tool_calls ?? []) {
      messages.push({ role: "tool", tool_call_id: call.id, content: "42" });
    }
  }
  return messages.slice(1);
}

async function anthropicLoop(stream) {
  const api = new Anthropic({
    baseURL: wire.url.anthropic,
    apiKey: wire.key,
    maxRetries: 0,
    fetch: keeping,
  });
  const messages = [{ role: "user", content: question }];
  const tools = [{ name: "add", input_schema: schema }];
  for (let turn = 0; turn < 2; turn += 1) {
    const request = { model: "tiny", max_tokens: 99, messages, tools };
    const answer = stream
      ? await api.messages.stream(request).finalMessage()
      : await api.messages.create(request);
    messages.push({ role: "assistant", content: answer.content });
    const result = { type: "tool_result", tool_use_id: "toolu_1", content: "42" };
    messages.push({ role: "user", content: [result] });
  }
  return messages.slice(1);
}

const said = [];
for (const loop of [openaiLoop, anthropicLoop]) {
  for (const stream of [false, true]) said.push(await loop(stream));
}
await Promise.all(pending);
console.log(JSON.stringify({ said, bodies }));
await dispatcher.close();
