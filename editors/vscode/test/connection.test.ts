import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";

import { Conversation } from "../src/core/conversation";
import { Desk } from "../src/core/desk";
import { CannotStart, ConnectionLost, Refusal, Restricted } from "../src/core/errors";
import { Launcher } from "../src/core/launch";
import type { LinkState } from "../src/core/link";
import { Link } from "../src/core/link";
import type { Change } from "../src/core/rows";
import type { Ask } from "../src/protocol.gen";
import { attached, FakeDaemon, HELLO, INFO, until } from "./fakeDaemon";

const FAST = { first: 5, longest: 20 };

async function linked(daemon: FakeDaemon, start?: () => Promise<void>): Promise<Link> {
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => start, pausesMs: FAST });
  await link.connect({ start: true });
  return link;
}

function desked(link: Link, { isTrusted = true, memory = new Map<string, string>() } = {}): Desk {
  return new Desk({
    link,
    clientId: "vscode-test",
    memory: {
      get: (key) => memory.get(key),
      set: (key, value) => void (value === undefined ? memory.delete(key) : memory.set(key, value)),
    },
    folder: () => "/w",
    environment: () => ({ KEY: "k" }),
    isTrusted: () => isTrusted,
    onProblem: (error) => {
      throw error;
    },
  });
}

const texts = (conversation: Conversation): string[] => {
  const all = conversation.transcript.all() as Change & { type: "reset" };
  return all.rows.map((each) => each.text);
};

test("a daemon is started once, however many ask for it at the same moment", async () => {
  const daemon = new FakeDaemon();
  let starts = 0;
  const link = new Link({
    socket: () => daemon.path,
    hello: HELLO,
    start: () => async () => {
      starts++;
      await daemon.start();
    },
  });
  await Promise.all([link.connect({ start: true }), link.connect({ start: true }), link.connect({ start: true })]);
  assert.equal(link.state.phase, "connected");
  assert.equal(starts, 1);
  link.dispose();
  await daemon.close();
});

test("without leave nothing is started, also when a daemon left its socket behind", async () => {
  const daemon = await new FakeDaemon().start();
  await daemon.die();
  let starts = 0;
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => async () => void starts++, pausesMs: FAST });
  await link.connect({ start: false });
  assert.equal(link.state.phase, "disconnected");
  await daemon.start();
  await until(() => link.state.phase === "connected");
  assert.equal(starts, 0);
  link.dispose();
  await daemon.close();
});

test("a command that can't start the daemon says why, and what to do", async () => {
  const daemon = new FakeDaemon();
  const places = { socket: daemon.path, log: join(daemon.directory, "log", "daemon.log") };
  const launcher = (path: string, ...args: string[]): Launcher =>
    new Launcher(() => ({ path, args }), process.env, () => places, 300);
  await assert.rejects(
    launcher("/does/not/exist").start(),
    (error) => error instanceof CannotStart && /pip install/.test(error.hint ?? ""),
  );
  await assert.rejects(launcher("sh", "-c", "echo no space left >&2; exit 1").start(), /status 1: no space left/);
  await assert.rejects(launcher("sh", "-c", "exit 0").start(), /nothing answers/);
  const another = launcher("sh", "-c", "exit 75").start();
  await daemon.start();
  await another;
  await daemon.close();
});

test("requests in flight fail when the daemon dies, and the connection comes back by itself", async () => {
  const daemon = await new FakeDaemon({ "basis/daemon/status": () => undefined }).start();
  const link = await linked(daemon);
  const states: LinkState["phase"][] = [];
  link.onState.on((state) => states.push(state.phase));
  const asked = daemon.next("basis/daemon/status");
  const request = link.request("basis/daemon/status", {});
  await asked;
  await Promise.all([assert.rejects(request, ConnectionLost), daemon.die()]);
  assert.equal(states[0], "disconnected");
  await assert.rejects(link.request("basis/daemon/ping", {}), ConnectionLost);
  await daemon.start();
  await until(() => link.state.phase === "connected");
  link.dispose();
  await daemon.close();
});

test("a refusal carries its kind and what to do", async () => {
  const error = { code: -32803, message: "x", data: { kind: "busy", message: "a turn runs", hint: "wait" } };
  const daemon = await new FakeDaemon({ "basis/turn/stop": () => ({ error }) }).start();
  const link = await linked(daemon);
  await assert.rejects(
    link.request("basis/turn/stop", { sessionId: "s" }),
    (raised) => raised instanceof Refusal && raised.kind === "busy" && raised.hint === "wait",
  );
  link.dispose();
  await daemon.close();
});

test("events that come right behind the answer to an attach are shown", async () => {
  const daemon = await new FakeDaemon({
    "basis/session/attach": (_, self) => {
      setImmediate(() => [5, 6].forEach((seq) => self.event(seq, { type: "assistant_delta", messageId: "m", text: `${seq}` })));
      return attached(4, { snapshot: { items: [] } });
    },
  }).start();
  const link = await linked(daemon);
  const conversation = new Conversation("s", link, "vscode-test");
  link.onNotification.on((each) => each.method === "basis/session/event" && conversation.feed(each.params));
  await conversation.attach();
  await until(() => texts(conversation).join() === "56");
  link.dispose();
  await daemon.close();
});

test("after a reconnect the window goes on where it stood: nothing lost, nothing twice", async () => {
  let restarts = 0;
  const say = (self: FakeDaemon, seq: number): void => self.event(seq, { type: "notice", message: `${seq}` });
  const daemon = await new FakeDaemon({
    "basis/workspace/open": () => ({ path: "/w", trust: { state: "none", pending: [] }, diagnostics: [], counts: {} }),
    "basis/session/attach": (params, self) => {
      if (params["afterSeq"] === undefined) {
        setImmediate(() => say(self, 1));
        return attached(0, { snapshot: { items: [] } });
      }
      restarts++;
      setImmediate(() => [1, 2, 3].filter((seq) => seq >= (params["afterSeq"] as number)).forEach((seq) => say(self, seq)));
      return attached(params["afterSeq"] as number);
    },
  }).start();
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => undefined, pausesMs: FAST });
  const desk = desked(link, { memory: new Map([["session", "s"]]) });
  await link.connect({ start: false });
  await until(() => desk.conversation !== undefined && texts(desk.conversation).join() === "1");
  await daemon.die();
  await daemon.start();
  await until(() => desk.conversation !== undefined && texts(desk.conversation).join() === "1,2,3");
  assert.equal(restarts, 1);
  assert.deepEqual(daemon.params("basis/session/attach").at(-1), { sessionId: "s", afterSeq: 1 });
  assert.deepEqual(daemon.params("basis/workspace/open").at(-1), { path: "/w", env: { KEY: "k" } });
  link.dispose();
  await daemon.close();
});

test("a session nobody prompted is begun anew under its name when its daemon is gone", async () => {
  const kinds = { error: { code: -32803, message: "x", data: { kind: "no_such_session", message: "gone" } } };
  let exists = false;
  const daemon = await new FakeDaemon({
    "basis/workspace/open": () => ({ path: "/w", trust: { state: "none", pending: [] }, diagnostics: [], counts: {} }),
    "basis/session/attach": () => (exists ? attached(0, { snapshot: { items: [] } }) : kinds),
    "basis/session/new": (params) => {
      exists = true;
      return { ...INFO, sessionId: params["sessionId"] };
    },
  }).start();
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => undefined, pausesMs: FAST });
  const desk = desked(link, { memory: new Map([["session", "s"]]) });
  await link.connect({ start: false });
  await until(() => desk.conversation?.sessionId === "s");
  link.dispose();
  await daemon.close();
});

test("a draft typed while there was no connection is saved when it is back, another's is shown", async () => {
  let kept = "from nvim";
  const daemon = await new FakeDaemon({
    "basis/session/attach": () => attached(0, { snapshot: { items: [] } }),
    "basis/session/draft": (params) => ({ text: (kept = (params["text"] as string | undefined) ?? kept) }),
  }).start();
  const link = await linked(daemon);
  const conversation = new Conversation("s", link, "vscode-test");
  await conversation.attach();
  assert.equal(conversation.draftText, "from nvim");
  conversation.noteDraft("mine");
  await conversation.attach();
  assert.equal(kept, "mine");
  link.dispose();
  await daemon.close();
});

test("who answered elsewhere is known, also when our answer came too late", async () => {
  const ask = { askId: "a1", sessionId: "s", workspace: "/w", title: "t" } as Ask;
  const decided = { by: { client: "nvim@host", kind: "nvim" }, decision: "deny", scope: "once", at: "" };
  const error = { code: -32803, message: "x", data: { kind: "ask_decided", message: "late", details: decided } };
  const daemon = await new FakeDaemon({
    "basis/daemon/subscribe": () => ({ workspaces: [], sessions: [], asks: [ask, { ...ask, askId: "a2" }] }),
    "basis/workspace/open": () => ({ path: "/w", trust: { state: "none", pending: [] }, diagnostics: [], counts: {} }),
    "basis/ask/answer": () => ({ error }),
  }).start();
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => undefined, pausesMs: FAST });
  const desk = desked(link);
  const closed: (string | undefined)[] = [];
  desk.asks.onClosed.on(({ by, isMine }) => closed.push(isMine ? "me" : by?.client));
  await link.connect({ start: false });
  await until(() => desk.asks.pending.length === 2);
  assert.equal(desk.status.text, "waiting for you (2)");
  assert.equal((await desk.asks.answer("a1", "allow", "once"))?.by.client, "nvim@host");
  daemon.notify("basis/daemon/event", { kind: "ask_closed", askId: "a2", by: { client: "cli@host" } });
  await until(() => closed.length === 2);
  assert.deepEqual(closed, ["nvim@host", "cli@host"]);
  link.dispose();
  await daemon.close();
});

test("in Restricted Mode a conversation is read and nothing is opened or begun", async () => {
  const daemon = await new FakeDaemon({ "basis/session/attach": () => attached(0, { snapshot: { items: [] } }) }).start();
  const link = new Link({ socket: () => daemon.path, hello: HELLO, start: () => undefined, pausesMs: FAST });
  const desk = desked(link, { isTrusted: false, memory: new Map([["session", "s"]]) });
  await link.connect({ start: false });
  await until(() => desk.conversation?.sessionId === "s");
  assert.match(desk.banner, /Restricted Mode/);
  await assert.rejects(desk.newConversation(), Restricted);
  assert.throws(() => desk.requireTrust(), Restricted);
  assert.deepEqual(daemon.params("basis/workspace/open"), []);
  link.dispose();
  await daemon.close();
});
