/** The messages every language is tested with: they have the types of `protocol.gen.ts`, and are taken as they come. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";

import { Decoder, encode } from "../src/core/framing";
import { Transcript } from "../src/core/transcript";
import type { AnyEvent, HistoryItem, SessionAttachResult } from "../src/protocol.gen";
import { EVENT_TYPES } from "../src/protocol.gen";

const GOLDEN = resolve("../../shared/golden");
const files = readdirSync(GOLDEN).filter((each) => each.endsWith(".json"));
const read = (file: string): unknown => JSON.parse(readFileSync(join(GOLDEN, file), "utf8"));

const OTHERS: Readonly<Record<string, string>> = {
  "cancelRequest.json": "CancelParams",
  "error.askDecided.json": "AskDecided",
  "error.data.json": "ErrorData",
  "initialize.clientHello.json": "ClientHello",
  "initialize.serverHello.json": "ServerHello",
};

function typeOf(file: string): string {
  const [, method, part] = /^(.+)\.(params|result)\.json$/.exec(file) ?? [];
  if (method && part) {
    const name = `basis/${method.replace(".", "/")}`;
    const table = part === "params" && isNotification(name) ? "Notifications" : "Requests";
    return `protocol.${table}["${name}"]["${part}"]`;
  }
  if (file.startsWith("event.")) {
    return `Extract<protocol.AnyEvent, { type: "${file.slice(6, -5)}" }>`;
  }
  return file.startsWith("preview.") ? "protocol.Preview" : `protocol.${OTHERS[file] ?? "unknown type of " + file}`;
}

const isNotification = (name: string): boolean =>
  ["basis/session/event", "basis/session/lagged", "basis/daemon/event"].includes(name);

test("every golden message has the type that was generated for it", () => {
  const lines = files.map((file, index) => `export const m${index}: ${typeOf(file)} = ${JSON.stringify(read(file))};`);
  mkdirSync("out/golden", { recursive: true });
  writeFileSync("out/golden/messages.ts", `import type * as protocol from "../../src/protocol.gen";\n${lines.join("\n")}\n`);
  const config = { extends: "../../tsconfig.json", compilerOptions: { noEmit: true, rootDir: "../.." }, include: ["."], exclude: [] };
  writeFileSync("out/golden/tsconfig.json", JSON.stringify(config));
  try {
    execFileSync("node_modules/.bin/tsc", ["-p", "out/golden"], { encoding: "utf8" });
  } catch (error) {
    assert.fail((error as { stdout: string }).stdout);
  }
});

test("every golden message survives the wire", () => {
  const decoder = new Decoder();
  for (const file of files) {
    assert.deepEqual(decoder.feed(encode(read(file))).map((body) => JSON.parse(body) as unknown), [read(file)], file);
  }
});

test("every golden event can be taken by a transcript", () => {
  const transcript = new Transcript(() => false);
  const taken = files.filter((each) => each.startsWith("event.")).map((file) => {
    const event = read(file) as AnyEvent;
    transcript.apply(event);
    return event.type;
  });
  assert.deepEqual(taken.sort(), [...EVENT_TYPES].sort());
});

test("the golden snapshot and history page paint every item", () => {
  const transcript = new Transcript(() => false);
  const attach = read("session.attach.result.json") as SessionAttachResult;
  transcript.reset(attach);
  transcript.prepend((read("session.history.result.json") as { items: HistoryItem[] }).items, undefined);
  const [reset, older] = transcript.takeChanges();
  assert.ok(reset?.type === "reset" && reset.rows.length > 0);
  assert.ok(older?.type === "older");
});
