/**
 * Everything one window knows of the daemon: the connection, live sessions, pending asks, the workspace it opened and the
 * session it works in. Knows no editor. Whoever paints listens to `onChange`.
 */

import { randomUUID } from "node:crypto";

import type { DaemonEvent, SessionInfo, SessionSummary, WorkspaceInfo } from "../protocol.gen";
import { AskBox } from "./asks";
import { Conversation, isGone } from "./conversation";
import { ConnectionLost, Restricted } from "./errors";
import type { Link } from "./link";
import type { Notification } from "./rpc";
import { Signal } from "./signal";
import type { Status } from "./status";
import { statusOf } from "./status";

const LISTED = 200;

/** What survives a reload of the window. */
export interface Memory {
  get(key: "session" | "draft"): string | undefined;
  set(key: "session" | "draft", value: string | undefined): void;
}

export interface DeskOptions {
  readonly link: Link;
  readonly clientId: string;
  readonly memory: Memory;
  /** The folder this window works in; sessions are begun there. */
  readonly folder: () => string | undefined;
  readonly environment: () => Record<string, string>;
  /** Whether the folder is trusted: else nothing is opened, sent or answered. */
  readonly isTrusted: () => boolean;
  readonly onProblem: (error: unknown) => void;
}

export class Desk {
  readonly onChange = new Signal<void>();
  readonly onConversation = new Signal<Conversation | undefined>();
  readonly asks: AskBox;
  readonly link: Link;
  workspace: WorkspaceInfo | undefined;
  conversation: Conversation | undefined;
  isStopping = false;
  private readonly live = new Map<string, SessionSummary>();
  /** The session at hand, and one that is being opened: its events may come before its draft was read. */
  private readonly followed = new Set<Conversation>();
  private opening: Promise<WorkspaceInfo> | undefined;

  constructor(private readonly options: DeskOptions) {
    this.link = options.link;
    this.asks = new AskBox(options.link);
    this.link.onState.on((state) => this.linkChanged(state.phase));
    this.link.onConnected.on(() => this.guard(this.connected()));
    this.link.onNotification.on((each) => this.notified(each));
    this.asks.onChange.on(() => this.onChange.emit());
  }

  // --- what there is ---

  get status(): Status {
    return statusOf(this.link.state, this.asks.pending.length, this.sessionsHere);
  }

  get liveSessions(): readonly SessionSummary[] {
    return [...this.live.values()].sort((one, other) => (one.updatedAt < other.updatedAt ? 1 : -1));
  }

  /** Live sessions of this window's folder. */
  get sessionsHere(): readonly SessionSummary[] {
    return this.liveSessions.filter((each) => each.workspace === this.root);
  }

  /** The folder as the daemon spells it. */
  get root(): string | undefined {
    return this.workspace?.path ?? this.options.folder();
  }

  get canAct(): boolean {
    return this.options.isTrusted();
  }

  /** Why nothing can be done, for everybody to see; empty when all is well. */
  get banner(): string {
    const state = this.link.state;
    if (state.phase === "connecting") {
      return `Connecting: ${state.why}`;
    }
    if (state.phase === "disconnected") {
      return `Disconnected: ${state.why}. Trying again.`;
    }
    if (this.isStopping) {
      return "The daemon is stopping.";
    }
    return this.canAct ? "" : new Restricted().message;
  }

  /** Conversations of this folder, newest first, and live ones of others. Empty while there is no connection. */
  async listSessions(): Promise<readonly SessionInfo[]> {
    const workspace = this.root;
    if (this.link.state.phase !== "connected" || workspace === undefined) {
      return [];
    }
    return (await this.link.request("basis/session/list", { workspace, limit: LISTED })).sessions;
  }

  // --- what can be done ---

  /** Open the folder with this window's environment. Rejects with `Restricted` where it is not trusted. */
  openWorkspace(): Promise<WorkspaceInfo> {
    this.opening ??= this.openNow().finally(() => (this.opening = undefined));
    return this.opening;
  }

  /** The session to prompt: the one at hand, else a new one. Nothing is written before the first prompt. */
  async ensureConversation(): Promise<Conversation> {
    return this.conversation ?? this.newConversation();
  }

  async newConversation(): Promise<Conversation> {
    await this.openWorkspace();
    return this.begin(randomUUID());
  }

  async openConversation(sessionId: string): Promise<Conversation> {
    if (this.conversation?.sessionId === sessionId) {
      return this.conversation;
    }
    const conversation = new Conversation(sessionId, this.link, this.options.clientId);
    await this.adopt(conversation);
    return conversation;
  }

  /** Throws `Restricted` where nothing may be done. */
  requireTrust(): void {
    if (!this.canAct) {
      throw new Restricted();
    }
  }

  /** The window was granted trust, or its folders changed. */
  async refresh(): Promise<void> {
    this.workspace = undefined;
    this.onChange.emit();
    if (this.link.state.phase === "connected") {
      await this.connected();
    }
  }

  noteDraft(text: string): void {
    this.options.memory.set("draft", text || undefined);
    this.conversation?.noteDraft(text);
  }

  async leave(): Promise<void> {
    await this.conversation?.saveDraft();
    this.link.dispose();
  }

  // --- below ---

  private async openNow(): Promise<WorkspaceInfo> {
    this.requireTrust();
    const path = this.options.folder();
    if (path === undefined) {
      throw new Error("Open a folder first: conversations belong to one.");
    }
    this.workspace = await this.link.request("basis/workspace/open", { path, env: this.options.environment() });
    this.onChange.emit();
    return this.workspace;
  }

  private async begin(sessionId: string): Promise<Conversation> {
    const workspace = this.root as string;
    const info = await this.link.request("basis/session/new", { workspace, sessionId });
    return this.openConversation(info.sessionId);
  }

  private async adopt(conversation: Conversation): Promise<void> {
    const previous = this.conversation;
    this.followed.add(conversation);
    try {
      await conversation.attach();
    } catch (error) {
      this.followed.delete(conversation);
      throw error;
    }
    this.conversation = conversation;
    conversation.onChange.on(() => this.onChange.emit());
    conversation.onEvent.on(({ event }) => {
      if (event.type === "ask_opened") {
        this.asks.open(event.ask);
      } else if (event.type === "ask_closed") {
        this.asks.close(event.askId, event.by);
      }
    });
    this.options.memory.set("session", conversation.sessionId);
    this.onConversation.emit(conversation);
    this.onChange.emit();
    if (previous) {
      this.followed.delete(previous);
      this.guard(previous.detach());
    }
  }

  private linkChanged(phase: string): void {
    if (phase !== "connected") {
      this.followed.forEach((each) => each.lost());
    } else {
      this.isStopping = false;
    }
    this.onChange.emit();
  }

  private async connected(): Promise<void> {
    const snapshot = await this.link.request("basis/daemon/subscribe", {});
    this.live.clear();
    snapshot.sessions.forEach((each) => this.live.set(each.sessionId, each));
    this.asks.replace(snapshot.asks);
    if (this.canAct && this.options.folder() !== undefined) {
      // A folder that can't be opened is told of; conversations can be read all the same.
      await this.openWorkspace().catch(this.options.onProblem);
    }
    await this.bringBack();
    this.onChange.emit();
  }

  /** The session of before the reconnect or the reload. One that was never prompted is gone with its daemon: begin it anew. */
  private async bringBack(): Promise<void> {
    const remembered = this.options.memory.get("session");
    try {
      if (this.conversation) {
        await this.conversation.attach();
      } else if (remembered !== undefined) {
        await this.openConversation(remembered);
      }
    } catch (error) {
      if (!isGone(error)) {
        throw error;
      }
      this.conversation = undefined;
      this.followed.clear();
      if (remembered !== undefined && this.canAct && this.options.folder() !== undefined) {
        await this.begin(remembered);
      }
    }
  }

  private notified(notification: Notification): void {
    switch (notification.method) {
      case "basis/session/event":
        this.followed.forEach((each) => each.feed(notification.params));
        break;
      case "basis/session/lagged":
        this.followed.forEach((each) => each.sessionId === notification.params.sessionId && each.attachAgain());
        break;
      case "basis/daemon/event":
        this.changed(notification.params);
        break;
      default:
        break;
    }
  }

  private changed(event: DaemonEvent): void {
    switch (event.kind) {
      case "session_changed":
        if (event.session) {
          this.live.set(event.session.sessionId, event.session);
        }
        break;
      case "session_removed":
        this.live.delete(event.sessionId ?? "");
        break;
      case "ask_opened":
        if (event.ask) {
          this.asks.open(event.ask);
        }
        break;
      case "ask_closed":
        this.asks.close(event.askId ?? "", event.by);
        break;
      case "stopping":
        this.isStopping = true;
        break;
      default:
        break;
    }
    this.onChange.emit();
  }

  private guard(work: Promise<unknown>): void {
    work.catch((error: unknown) => {
      if (!(error instanceof ConnectionLost)) {
        this.options.onProblem(error);
      }
    });
  }
}
