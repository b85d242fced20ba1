import assert from "node:assert/strict";
import { test } from "node:test";

import type { Machine } from "../src/core/address";
import { findSocket, NoDataDirectory } from "../src/core/address";
import { snapshotOf } from "../src/core/environment";
import { Decoder, encode, FramingError } from "../src/core/framing";
import { inputOf, placeOf } from "../src/core/prompting";
import { statusOf } from "../src/core/status";
import { oneLine, plain, visible } from "../src/core/visible";
import { stateWords } from "../src/core/words";
import type { ServerHello, SessionSummary } from "../src/protocol.gen";

const MACHINE: Machine = { platform: "linux", uid: 1000, isUsableDirectory: (path) => path === "/run/user/1000" };

test("the socket is where the environment says, else in the runtime directory", () => {
  assert.equal(findSocket({ BASIS_SOCKET: " /a/b.sock " }, MACHINE), "/a/b.sock");
  assert.equal(findSocket({ BASIS_DATA_DIR: "/data" }, MACHINE), "/data/run/daemon.sock");
  assert.equal(findSocket({ HOME: "/home/p" }, MACHINE), "/run/user/1000/basis/daemon.sock");
  const nowhere = { ...MACHINE, isUsableDirectory: () => false };
  assert.equal(findSocket({ HOME: "/home/p" }, nowhere), "/home/p/.local/share/basis/run/daemon.sock");
  assert.throws(() => findSocket({ BASIS_DATA_DIR: "relative" }, MACHINE), NoDataDirectory);
});

test("a socket path that can't be bound is replaced by a short one, the same every time", () => {
  const environment = { BASIS_SOCKET: `/${"long/".repeat(40)}d.sock` };
  const short = findSocket(environment, MACHINE);
  assert.match(short, /^\/run\/user\/1000\/basis\/[0-9a-f]{16}\.sock$/);
  assert.equal(findSocket(environment, MACHINE), short);
});

test("messages come out of the stream whole, wherever it was cut", () => {
  const stream = Buffer.concat([encode({ a: "ä€😀" }), encode({ b: 2 }), encode([])]);
  for (let size = 1; size < stream.length; size += 7) {
    const decoder = new Decoder();
    const bodies: string[] = [];
    for (let at = 0; at < stream.length; at += size) {
      bodies.push(...decoder.feed(stream.subarray(at, at + size)));
    }
    assert.deepEqual(bodies.map((each) => JSON.parse(each) as unknown), [{ a: "ä€😀" }, { b: 2 }, []]);
  }
});

test("a stream that is no protocol ends the connection instead of growing", () => {
  assert.throws(() => new Decoder().feed(Buffer.alloc(5000, "x")), FramingError);
  assert.throws(() => new Decoder().feed(Buffer.from("Content-Length: 99999999999\r\n\r\n")), FramingError);
  assert.throws(() => new Decoder().feed(Buffer.from("Other: 1\r\n\r\n")), FramingError);
});

test("what would mislead the eye is shown", () => {
  assert.equal(visible("a\tb\r\nc\u001b[31m\u007f\u202e\u200b\u{e0041}é😀"), "a\tb\nc␛[31m␡<U+202E><U+200B><U+E0041>é😀");
  assert.equal(oneLine("a\nb", 10), "a⏎b");
  assert.equal(oneLine("x".repeat(50), 10), `${"x".repeat(9)}…`);
});

test("a title in a notification is neither a link nor an icon", () => {
  const hostile = plain("[press me](command:evil) $(bell)");
  assert.ok(!/\]\(/.test(hostile) && !/\$\(/.test(hostile));
});

test("the environment goes to the workspace without what is the editor's own", () => {
  const environment = { PATH: "/bin", KEY: "k", VSCODE_PID: "1", ELECTRON_RUN_AS_NODE: "1", GONE: undefined };
  assert.deepEqual(snapshotOf(environment), { PATH: "/bin", KEY: "k" });
});

test("what needs the person most is what the status says", () => {
  const connected = { phase: "connected", server: {} as ServerHello } as const;
  const session = (state: string): SessionSummary => ({ sessionId: state, workspace: "/w", title: "", state, updatedAt: "" });
  const sessions = [session("idle"), session("working"), session("waiting_provider")];
  assert.equal(statusOf({ phase: "disconnected", why: "gone" }, 3, sessions).text, "disconnected");
  assert.equal(statusOf({ phase: "connecting", why: "" }, 3, sessions).text, "connecting");
  assert.equal(statusOf(connected, 2, sessions).text, "waiting for you (2)");
  assert.equal(statusOf(connected, 0, sessions).text, "waiting for the provider");
  assert.equal(statusOf(connected, 0, [session("working")]).text, "working");
  assert.equal(statusOf(connected, 0, [session("interrupted")]).text, "interrupted");
  assert.equal(statusOf(connected, 0, [session("idle")]).text, "idle");
});

test("a wait for the provider says until when, if that is known", () => {
  const noon = new Date(2026, 0, 31, 12, 0, 5).toISOString();
  assert.equal(stateWords("waiting_provider", noon), "waiting for the provider until 12:00:05");
  assert.equal(stateWords("waiting_provider"), "waiting for the provider");
  assert.equal(stateWords("waiting_provider", "<b>"), "waiting for the provider until ?");
  assert.equal(stateWords("working", noon), "working");
});

test("context comes before what is said about it, as it is when it is sent", async () => {
  let text = "old";
  const file = { label: "f", block: () => ({ type: "resource", uri: "file:///f", text }) as const };
  text = "new";
  assert.deepEqual(await inputOf("why?", [file]), [
    { type: "resource", uri: "file:///f", text: "new" },
    { type: "text", text: "why?" },
  ]);
  assert.deepEqual(await inputOf("  ", []), []);
  assert.equal(placeOf("a.py", 2, 2), "a.py:3");
  assert.equal(placeOf("a.py", 2, 8), "a.py:3-9");
});
