// Drive a host with the official TypeScript client and print what was seen as one JSON object.
//
//   node drive.mjs '{"line": "v1" | "v2", "mode": "legacy" | "auto" | "2026-07-28", "argv": [...], ...}'
//
// With "url" instead of "argv" over HTTP.

const wanted = JSON.parse(process.argv[2]);
const seen = { notifications: [] };

async function load() {
  if (wanted.line === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    return { Client, StdioClientTransport, StreamableHTTPClientTransport, elicitation: ElicitRequestSchema };
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  return { Client, StdioClientTransport, StreamableHTTPClientTransport, elicitation: "elicitation/create" };
}

const { Client, StdioClientTransport, StreamableHTTPClientTransport, elicitation } = await load();
const mode = wanted.mode === "legacy" || wanted.mode === "auto" ? wanted.mode : { pin: wanted.mode };
const client = new Client(
  { name: "typescript-client", version: "1.0.0" },
  { capabilities: { elicitation: {} }, versionNegotiation: { mode } },
);
client.setRequestHandler(elicitation, async () => ({ action: "accept", content: { name: "Ada" } }));
const transport = wanted.url ? new StreamableHTTPClientTransport(new URL(wanted.url)) : piped(wanted.argv);

function piped([command, ...args]) {
  return new StdioClientTransport({ command, args, env: wanted.env, cwd: wanted.cwd });
}

let announce;
const changed = new Promise((resolve) => (announce = resolve));
client.fallbackNotificationHandler = async (note) => {
  seen.notifications.push(note.method);
  if (note.method === "notifications/tools/list_changed") announce();
};

const call = (name, given = {}) => client.callTool({ name, arguments: given });
const row = async () => {
  const health = await call("health", { render: "json", detail: "full" });
  return health.structuredContent.mounts.find((mount) => mount.name === "fake");
};

await client.connect(transport);
seen.server = client.getServerVersion();
seen.version = client.getNegotiatedProtocolVersion?.() ?? null;
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
seen.resources = (await client.listResources()).resources.map((resource) => resource.uri);
seen.prompt = (await client.getPrompt({ name: "fake__greet", arguments: { who: "bob" } })).messages[0].content.text;
seen.read = (await client.readResource({ uri: "fake://a" })).contents[0].text;
seen.echo = (await call("fake__echo", { text: "hi" })).structuredContent;
seen.asked = (await call("fake__ask", { method: "elicitation/create", key: "q" })).content[0].text;

// This client forgets progress that comes in one chunk with the answer, so the last steps may be missing.
const steps = [];
await client.callTool(
  { name: "fake__progress", arguments: { n: 3, delay_ms: 40 } },
  ...(wanted.line === "v1" ? [undefined] : []),
  { onprogress: (progress) => steps.push(progress.progress) },
);
seen.progress = steps;

// kill -9 with a call in flight
const before = await row();
const lost = call("fake__slow", { ms: 60000, key: "lost" }).then(
  () => ({ code: 0 }),
  (error) => ({ code: error.code, data: error.data }),
);
await call("fake__echo", { text: "the slow one has been read by now" });
process.kill(before.pid, "SIGKILL");
seen.lost = await lost;
seen.after = (await call("fake__echo", { text: "and on" })).structuredContent;
seen.replaced = (await row()).pid !== before.pid;

// a changed list
const stream = wanted.mode === "legacy" ? null : await client.listen({ toolsListChanged: true });
await call("fake__change_catalog", { add: "fresh" });
await changed;
seen.fresh = (await client.listTools()).tools.some((tool) => tool.name === "fake__fresh");
if (stream) await stream.close();

await client.close();
console.log(JSON.stringify(seen));
