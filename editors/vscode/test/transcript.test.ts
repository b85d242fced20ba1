import assert from "node:assert/strict";
import { test } from "node:test";

import type { Change, Row } from "../src/core/rows";
import { MAX_ROWS, SHOWN_AT_FIRST, Transcript } from "../src/core/transcript";
import type { AnyEvent, Ask } from "../src/protocol.gen";

const ASK: Ask = {
  askId: "ask-1",
  sessionId: "s",
  workspace: "/w",
  kind: "tool",
  title: "Write a.txt",
  description: "",
  preview: { type: "diff", files: [{ path: "a.txt", patch: "@@ -1 +1 @@\n-a\n+b", old: "a", new: "b" }] },
  options: [{ optionId: "allow-once", label: "Allow", decision: "allow", scope: "once" }],
  createdAt: "",
};

function transcript(...events: AnyEvent[]): Transcript {
  const made = new Transcript((by) => by?.clientId === "me");
  made.reset();
  made.takeChanges();
  events.forEach((each) => made.apply(each));
  return made;
}

/** What a webview shows that has followed every change. */
function painted(made: Transcript, rows: Row[] = []): Row[] {
  for (const change of made.takeChanges() as Change[]) {
    const index = "id" in change ? rows.findIndex((each) => each.id === change.id) : -1;
    if (change.type === "reset") {
      rows = [...change.rows];
    } else if (change.type === "older") {
      rows = [...change.rows, ...rows];
    } else if (change.type === "remove") {
      rows.splice(index, 1);
    } else if (change.type === "append") {
      const row = rows[index] as Row;
      rows[index] = { ...row, text: row.text + change.text };
    } else {
      const at = rows.findIndex((each) => each.id === change.row.id);
      rows.splice(at < 0 ? rows.length : at, at < 0 ? 0 : 1, change.row);
    }
  }
  return rows;
}

const delta = (text: string, messageId = "m"): AnyEvent => ({ type: "assistant_delta", text, messageId });

test("deltas are appended, the whole message takes their place", () => {
  const made = transcript(delta("Hel"));
  let rows = painted(made);
  made.apply(delta("lo"));
  made.apply(delta(" you"));
  assert.deepEqual(made.takeChanges(), [{ type: "append", id: "assistant:m", text: "lo you" }]);
  made.apply({ type: "assistant_message", messageId: "m", text: "Hello you." });
  rows = painted(made, rows);
  assert.deepEqual(rows.map((each) => each.text), ["Hello you."]);
});

test("hostile text stays text and becomes visible", () => {
  const [row] = painted(transcript(delta("<script>alert(1)</script>\u001b[2J\u202e")));
  assert.equal(row?.text, "<script>alert(1)</script>␛[2J<U+202E>");
});

test("a megabyte in one line is cut, and shown on demand", () => {
  const made = transcript({ type: "assistant_message", messageId: "m", text: "x".repeat(1_000_000) });
  const [row] = painted(made);
  assert.equal(row?.text.length, SHOWN_AT_FIRST);
  assert.equal(row?.cut, 1_000_000 - SHOWN_AT_FIRST);
  assert.deepEqual(row?.buttons.map((each) => each.id), ["more"]);

  assert.ok(made.expand("assistant:m"));
  assert.equal(painted(made)[0]?.text.length, SHOWN_AT_FIRST * 8);
  while (made.expand("assistant:m"));
  assert.equal(painted(made)[0]?.buttons[0]?.id, "open");
  assert.equal(made.textOf("assistant:m")?.length, 1_000_000);
});

test("a long answer that streams costs no more than what is shown", () => {
  const made = transcript(delta("x".repeat(SHOWN_AT_FIRST - 1)));
  made.takeChanges();
  made.apply(delta("yyy"));
  const [change] = made.takeChanges();
  assert.ok(change?.type === "put" && change.row.text.length === SHOWN_AT_FIRST && change.row.cut === 2);
});

test("a tool call goes from queued to its end in one row", () => {
  const call = { toolCallId: "c", toolName: "bash" };
  const made = transcript({ type: "tool_queued", ...call, summary: "ls" }, { type: "tool_started", ...call });
  assert.deepEqual(painted(made).map((each) => [each.head, each.state]), [["bash: ls", "running"]]);
  made.apply({ type: "tool_progress", ...call, progress: "working" });
  made.apply({ type: "tool_completed", ...call, summary: "2 files", isError: false, resultId: "s/1" });
  const [row] = painted(made);
  assert.deepEqual([row?.text, row?.state, row?.buttons.map((each) => each.id)], ["2 files", "ok", ["result"]]);
});

test("an ask has its options as buttons, and says who answered it elsewhere", () => {
  const made = transcript({ type: "ask_opened", ask: ASK });
  const rows = painted(made);
  assert.deepEqual(rows[0]?.buttons.map((each) => each.id), ["answer:0", "diff:0"]);
  assert.equal(made.diffsOf("ask:ask-1")[0]?.new, "b");

  made.apply({ type: "ask_closed", askId: "ask-1", by: { client: "nvim@host", kind: "nvim" }, decision: "deny", reason: "no" });
  const [row] = painted(made, rows);
  assert.equal(row?.head, "Write a.txt — denied by nvim@host: no");
  assert.deepEqual(row?.buttons.map((each) => each.id), ["diff:0"]);
});

test("an ask that was answered while the connection was lost is closed when it is back", () => {
  const made = transcript({ type: "ask_opened", ask: ASK });
  made.syncAsks([]);
  assert.equal(painted(made)[0]?.state, "closed");
});

test("text that a retry makes void goes away", () => {
  const made = transcript(delta("half an ans"));
  const rows = painted(made);
  made.apply({
    type: "retry",
    agentId: "s",
    error: "overloaded",
    attempt: 1,
    maxAttempts: 3,
    nextDelayMs: 1,
    discardedMessageId: "m",
  });
  assert.deepEqual(painted(made, rows).map((each) => each.kind), ["notice"]);
});

test("whose prompt it was is told, unless it was ours", () => {
  const said = (clientId: string): AnyEvent => ({
    type: "user_message",
    text: "hi",
    by: { client: "nvim@host", kind: "nvim", clientId },
  });
  assert.deepEqual(painted(transcript(said("me"), said("other"))).map((each) => each.head), ["you", "nvim@host"]);
});

test("a snapshot paints items, the message under way and pending asks, then goes on with events", () => {
  const made = transcript();
  made.reset({
    snapshot: {
      items: [
        { entryId: "1", kind: "user", text: "go" },
        { entryId: "2", kind: "tool", toolCallId: "c", toolName: "read", input: { path: "a.txt" } },
      ],
      partial: { messageId: "m", text: "Hel", reasoning: "hm" },
      previousCursor: "1",
    },
    asks: [ASK],
  });
  made.apply(delta("lo"));
  made.apply({ type: "tool_completed", toolCallId: "c", toolName: "read", summary: "1 line", isError: false });
  const rows = painted(made);
  assert.deepEqual(
    rows.map((each) => [each.kind, each.text]),
    [
      ["user", "go"],
      ["tool", "1 line"],
      ["reasoning", "hm"],
      ["assistant", "Hello"],
      ["ask", "@@ -1 +1 @@\n-a\n+b"],
    ],
  );
});

test("older pages go before what is there, once", () => {
  const made = transcript();
  made.reset({ snapshot: { items: [{ entryId: "2", kind: "user", text: "two" }], previousCursor: "2" }, asks: [] });
  let rows = painted(made);
  made.prepend([{ entryId: "1", kind: "user", text: "one" }, { entryId: "2", kind: "user", text: "two" }], undefined);
  rows = painted(made, rows);
  assert.deepEqual(rows.map((each) => each.text), ["one", "two"]);
});

test("a conversation that grew beyond what is kept, or was taken back, is fetched anew", () => {
  const made = transcript();
  for (let index = 0; index <= MAX_ROWS; index++) {
    made.apply({ type: "notice", message: `${index}` });
  }
  assert.ok(made.needsSnapshot);
  assert.ok(transcript({ type: "branched", abandonedEntries: 2 }).needsSnapshot);
});

test("events of a newer daemon are passed over", () => {
  assert.deepEqual(painted(transcript({ type: "hologram" } as unknown as AnyEvent)), []);
});
