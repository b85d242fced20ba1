/**
 * A session's conversation as rows. Owns which event changes which row and how much of a long text is shown. Changes are
 * collected and taken in batches, so a burst of tokens costs one message to the webview.
 */

import type { Actor, AnyEvent, Ask, FileDiff, HistoryItem, SessionAttachResult } from "../protocol.gen";
import type { Change, Row, RowButton, RowKind } from "./rows";
import { oneLine, visible } from "./visible";

/** Characters of one row that are shown at first; a megabyte in one line must not reach the webview unasked. */
export const SHOWN_AT_FIRST = 8_000;
const SHOWN_AT_MOST = 512_000;
const SHOWN_OF_TOOLS = 2_000;
const KEPT_PROGRESS = 8_000;

/** More rows than this are given up for a fresh snapshot of the newest. */
export const MAX_ROWS = 2_000;

interface Entry {
  readonly id: string;
  readonly kind: RowKind;
  head: string;
  text: string;
  limit: number;
  state: string;
  diff: readonly FileDiff[];
  resultId?: string;
  ask?: Ask;
  turnId?: string;
}

type Dirty = "whole" | { readonly from: number };

export class Transcript {
  /** Set when what is shown can't be kept current by events: attach again for a snapshot. */
  needsSnapshot = false;
  olderCursor: string | undefined;

  private entries: Entry[] = [];
  private readonly byId = new Map<string, Entry>();
  private readonly dirty = new Map<string, Dirty>();
  private changes: Change[] = [];
  private nextId = 1;

  /** `isMe`: whether an actor is this window, so that its prompts are headed "you". */
  constructor(private readonly isMe: (by: Actor | undefined) => boolean) {}

  // --- what goes in ---

  /** Start again from a snapshot, or from nothing. */
  reset(attached?: Pick<SessionAttachResult, "snapshot" | "asks">): void {
    this.entries = [];
    this.byId.clear();
    this.dirty.clear();
    this.needsSnapshot = false;
    this.olderCursor = attached?.snapshot?.previousCursor;
    for (const item of attached?.snapshot?.items ?? []) {
      this.addAll(entriesOf(item));
    }
    const partial = attached?.snapshot?.partial;
    if (partial) {
      if (partial.reasoning) {
        this.stream("reasoning", partial.messageId, partial.reasoning);
      }
      if (partial.text) {
        this.stream("assistant", partial.messageId, partial.text);
      }
    }
    for (const ask of attached?.asks ?? []) {
      this.openAsk(ask);
    }
    this.dirty.clear();
    this.changes = [this.all()];
  }

  /** A page of the conversation before what is there. */
  prepend(items: readonly HistoryItem[], olderCursor: string | undefined): void {
    const fresh = items.flatMap(entriesOf).filter((each) => !this.byId.has(each.id));
    for (const each of fresh) {
      this.byId.set(each.id, each);
    }
    this.entries.unshift(...fresh);
    this.olderCursor = olderCursor;
    this.flush();
    this.changes.push({ type: "older", rows: fresh.map(rowOf), hasOlder: olderCursor !== undefined });
  }

  /** Asks as they stand now: those that were answered while nobody listened are closed. */
  syncAsks(pending: readonly Ask[]): void {
    const ids = new Set(pending.map((each) => each.askId));
    for (const entry of this.entries) {
      if (entry.ask && entry.state === "waiting" && !ids.has(entry.ask.askId)) {
        this.finishAsk(entry, "answered");
      }
    }
    pending.forEach((each) => this.openAsk(each));
  }

  apply(event: AnyEvent): void {
    switch (event.type) {
      case "user_message":
        this.removeId(`queued:${event.turnId}`);
        this.add("user", this.isMe(event.by) ? "you" : (event.by?.client ?? "you"), withImages(event.text, event.imageCount));
        break;
      case "assistant_delta":
        this.stream("assistant", event.messageId, event.text);
        break;
      case "assistant_reasoning_delta":
        this.stream("reasoning", event.messageId, event.text);
        break;
      case "assistant_message":
        this.put(messageEntry("assistant", event.messageId ?? `${this.nextId++}`, event.text));
        break;
      case "tool_queued":
        this.put(toolEntry(event.toolCallId, event.toolName, event.summary, "queued"));
        break;
      case "tool_started":
        this.changeTool(event.toolCallId, event.toolName, (entry) => (entry.state = "running"));
        break;
      case "tool_progress":
        this.changeTool(event.toolCallId, event.toolName, (entry) => {
          entry.state = "running";
          entry.text = (entry.text + event.progress).slice(-KEPT_PROGRESS);
        });
        break;
      case "tool_completed":
        this.changeTool(event.toolCallId, event.toolName, (entry) => {
          entry.state = event.isError ? "failed" : "ok";
          entry.text = event.summary;
          entry.diff = event.diff ?? [];
          if (event.resultId !== undefined) {
            entry.resultId = event.resultId;
          }
        });
        break;
      case "ask_opened":
        this.openAsk(event.ask);
        break;
      case "ask_closed": {
        const entry = this.byId.get(`ask:${event.askId}`);
        const word = event.decision === "allow" ? "allowed" : "denied";
        const whom = this.isMe(event.by) ? "you" : event.by.client;
        const reason = event.reason ? `: ${oneLine(event.reason)}` : "";
        if (entry) {
          this.finishAsk(entry, `${word} by ${whom}${reason}`);
        }
        break;
      }
      case "turn_queued":
        this.put(entryOf(`queued:${event.turnId}`, "notice", "queued", `behind ${event.position} other(s)`));
        break;
      case "run_finished":
        this.finishTurn(event.status, event.message, event.stoppedBy);
        break;
      case "retry":
        if (event.discardedMessageId !== undefined) {
          this.removeId(`assistant:${event.discardedMessageId}`);
          this.removeId(`reasoning:${event.discardedMessageId}`);
        }
        this.add("notice", "retry", `${event.error} (attempt ${event.attempt} of ${event.maxAttempts})`);
        break;
      case "error":
        this.add("error", "error", event.message);
        break;
      case "notice":
        this.add("notice", event.severity ?? "info", event.message);
        break;
      case "compaction_completed":
        this.add("notice", "shortened", `${event.replacedItems} items became a summary`);
        break;
      case "task_updated":
        this.add("notice", event.kind, `${event.title}: ${event.status}`);
        break;
      case "config_changed":
        this.add("notice", event.by?.client ?? "setting", `${event.option} is now ${event.value}`);
        break;
      case "lease_conflict":
        this.add("error", "in use", `another process holds this conversation: ${event.holder}`);
        break;
      case "branched":
        this.needsSnapshot = true;
        break;
      default:
        break;
    }
    if (this.entries.length > MAX_ROWS) {
      this.needsSnapshot = true;
    }
  }

  /** Show more of a long row. Returns false when its whole text is better read in an editor. */
  expand(id: string): boolean {
    const entry = this.byId.get(id);
    if (!entry || entry.limit >= SHOWN_AT_MOST) {
      return false;
    }
    entry.limit = Math.min(SHOWN_AT_MOST, entry.limit * 8);
    this.dirty.set(id, "whole");
    return true;
  }

  // --- what comes out ---

  /** Everything, for a webview that has just been opened. */
  all(): Change {
    return { type: "reset", rows: this.entries.map(rowOf), hasOlder: this.olderCursor !== undefined };
  }

  /** What has changed since the last call, in order. */
  takeChanges(): readonly Change[] {
    this.flush();
    const taken = this.changes;
    this.changes = [];
    return taken;
  }

  textOf(id: string): string | undefined {
    return this.byId.get(id)?.text;
  }

  resultIdOf(id: string): string | undefined {
    return this.byId.get(id)?.resultId;
  }

  /** Changes of files a row tells of, or asks about. */
  diffsOf(id: string): readonly FileDiff[] {
    const entry = this.byId.get(id);
    return entry?.ask?.preview.type === "diff" ? entry.ask.preview.files : (entry?.diff ?? []);
  }

  askOf(id: string): Ask | undefined {
    return this.byId.get(id)?.ask;
  }

  // --- below ---

  private add(kind: RowKind, head: string, text: string): void {
    this.put(entryOf(`live:${this.nextId++}`, kind, head, text));
  }

  private addAll(entries: readonly Entry[]): void {
    for (const each of entries) {
      this.byId.set(each.id, each);
      this.entries.push(each);
    }
  }

  private put(entry: Entry): void {
    const old = this.byId.get(entry.id);
    if (old) {
      Object.assign(old, { ...entry, limit: old.limit });
    } else {
      this.addAll([entry]);
    }
    this.dirty.set(entry.id, "whole");
  }

  private stream(kind: "assistant" | "reasoning", messageId: string | undefined, text: string): void {
    const id = `${kind}:${messageId ?? "now"}`;
    const entry = this.byId.get(id);
    if (!entry) {
      this.put(messageEntry(kind, messageId ?? "now", text));
      return;
    }
    if (!this.dirty.has(id)) {
      this.dirty.set(id, { from: entry.text.length });
    }
    entry.text += text;
  }

  private changeTool(callId: string, name: string, change: (entry: Entry) => void): void {
    const id = `tool:${callId}`;
    if (!this.byId.has(id)) {
      this.put(toolEntry(callId, name, "", "queued"));
    }
    change(this.byId.get(id) as Entry);
    this.dirty.set(id, "whole");
  }

  private openAsk(ask: Ask): void {
    const known = this.byId.get(`ask:${ask.askId}`);
    if (known) {
      return;
    }
    const entry = entryOf(`ask:${ask.askId}`, "ask", oneLine(ask.title), askText(ask));
    entry.ask = ask;
    entry.state = "waiting";
    this.put(entry);
  }

  private finishAsk(entry: Entry, outcome: string): void {
    entry.state = "closed";
    entry.head = `${oneLine(entry.ask?.title ?? "")} — ${outcome}`;
    this.dirty.set(entry.id, "whole");
  }

  private finishTurn(status: string, message: string | undefined, stoppedBy: string | undefined): void {
    for (const entry of this.entries) {
      if (entry.kind === "tool" && (entry.state === "running" || entry.state === "queued")) {
        entry.state = "closed";
        this.dirty.set(entry.id, "whole");
      }
    }
    if (status !== "ok") {
      this.add(status === "error" ? "error" : "notice", status, message ?? `the turn was ${status}`);
    } else if (stoppedBy) {
      this.add("notice", "stopped", `by ${stoppedBy.replaceAll("_", " ")}`);
    }
  }

  private removeId(id: string): void {
    const entry = this.byId.get(id);
    if (entry) {
      this.byId.delete(id);
      this.dirty.delete(id);
      this.entries.splice(this.entries.indexOf(entry), 1);
      this.changes.push({ type: "remove", id });
    }
  }

  private flush(): void {
    for (const [id, dirty] of this.dirty) {
      const entry = this.byId.get(id);
      if (!entry) {
        continue;
      }
      // A text that is cut, or was, is sent whole: at most `limit` characters.
      const canAppend = dirty !== "whole" && entry.text.length <= entry.limit;
      this.changes.push(
        canAppend ? { type: "append", id, text: visible(entry.text.slice(dirty.from)) } : { type: "put", row: rowOf(entry) },
      );
    }
    this.dirty.clear();
  }
}

function entryOf(id: string, kind: RowKind, head: string, text: string, state = ""): Entry {
  return { id, kind, head: oneLine(head), text, limit: SHOWN_AT_FIRST, state, diff: [] };
}

function messageEntry(kind: "assistant" | "reasoning", messageId: string, text: string): Entry {
  return entryOf(`${kind}:${messageId}`, kind, kind === "reasoning" ? "thinking" : "basis", text);
}

function toolEntry(callId: string, name: string, summary: string, state: string): Entry {
  const head = !summary ? name : summary.startsWith(name) ? summary : `${name}: ${summary}`;
  const entry = entryOf(`tool:${callId}`, "tool", head, "", state);
  entry.limit = SHOWN_OF_TOOLS;
  return entry;
}

function entriesOf(item: HistoryItem): Entry[] {
  switch (item.kind) {
    case "assistant": {
      const id = item.messageId ?? item.entryId;
      const reasoning = item.reasoning ? [messageEntry("reasoning", id, item.reasoning)] : [];
      return item.text ? [...reasoning, messageEntry("assistant", id, item.text)] : reasoning;
    }
    case "tool": {
      const hasEnded = item.summary !== undefined || item.text !== undefined || item.isError !== undefined;
      const state = item.isError ? "failed" : hasEnded ? "ok" : "queued";
      const name = item.toolName ?? "tool";
      const entry = toolEntry(item.toolCallId ?? item.entryId, name, inputSummary(item.input), state);
      entry.text = item.text || (item.summary ?? "");
      entry.diff = item.diff ?? [];
      if (item.resultId !== undefined) {
        entry.resultId = item.resultId;
      }
      return [entry];
    }
    case "user":
      return [entryOf(`entry:${item.entryId}`, "user", "you", withImages(item.text ?? "", item.imageCount))];
    default:
      return [entryOf(`entry:${item.entryId}`, "notice", item.kind, item.text ?? "")];
  }
}

/** The first short text of a tool's input says most: a path, a command, a pattern. */
function inputSummary(input: unknown): string {
  if (typeof input !== "object" || input === null) {
    return typeof input === "string" ? oneLine(input, 80) : "";
  }
  const first = Object.values(input).find((value) => typeof value === "string" && value !== "");
  return typeof first === "string" ? oneLine(first, 80) : "";
}

function askText(ask: Ask): string {
  switch (ask.preview.type) {
    case "command":
      return `${ask.preview.command}\n\nin ${ask.preview.cwd}${warningsOf(ask.preview.classification?.warnings)}`;
    case "diff":
      return ask.preview.files.map((each) => each.patch).join("\n");
    case "call":
      return JSON.stringify(ask.preview.input, null, 2) ?? "";
    default:
      return ask.description;
  }
}

function warningsOf(warnings: readonly string[] | undefined): string {
  return warnings?.length ? `\n⚠ ${warnings.join("\n⚠ ")}` : "";
}

function withImages(text: string, count = 0): string {
  return count ? `${text}\n[${count} image(s)]` : text;
}

function rowOf(entry: Entry): Row {
  const cut = Math.max(0, entry.text.length - entry.limit);
  const row = {
    id: entry.id,
    kind: entry.kind,
    head: oneLine(entry.head),
    text: visible(cut ? entry.text.slice(0, entry.limit) : entry.text),
    cut,
    state: entry.state,
  };
  return { ...row, buttons: buttonsOf(entry, cut) };
}

/** A button's id is what the webview sends back; what it does is decided in the extension. */
function buttonsOf(entry: Entry, cut: number): RowButton[] {
  const buttons: RowButton[] = [];
  if (entry.ask && entry.state === "waiting") {
    entry.ask.options.forEach((option, index) =>
      buttons.push({ id: `answer:${index}`, label: oneLine(option.label, 40), isPrimary: index === 0 }),
    );
  }
  const files = entry.ask?.preview.type === "diff" ? entry.ask.preview.files : entry.diff;
  files.forEach((file, index) =>
    buttons.push({ id: `diff:${index}`, label: files.length > 1 ? `Diff ${oneLine(file.path, 40)}` : "Show diff" }),
  );
  if (cut) {
    buttons.push({ id: entry.limit < SHOWN_AT_MOST ? "more" : "open", label: `Show more (${cut} characters left)` });
  }
  if (entry.resultId !== undefined) {
    buttons.push({ id: "result", label: "Full output" });
  }
  return buttons;
}
