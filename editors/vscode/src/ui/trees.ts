/** The two trees: sessions and the inbox. They show what the desk knows and are asked again whenever it changes. */

import * as vscode from "vscode";

import type { Desk } from "../core/desk";
import { oneLine } from "../core/visible";
import { stateWords } from "../core/words";
import type { Ask, SessionInfo, SessionSummary } from "../protocol.gen";

const REFRESH_MS = 150;

const STATE_ICONS: Readonly<Record<string, string>> = {
  working: "sync",
  queued: "clock",
  waiting_person: "bell-dot",
  waiting_provider: "cloud",
  interrupted: "debug-pause",
};

export interface SessionNode {
  readonly type: "session";
  readonly sessionId: string;
  readonly title: string;
  readonly state: string;
  readonly updatedAt: string;
}

interface GroupNode {
  readonly type: "group";
  readonly label: string;
  readonly sessions: readonly SessionNode[];
}

type Node = SessionNode | GroupNode;

/** Sessions of this folder, then live ones of others, a group a folder. */
export class SessionsTree implements vscode.TreeDataProvider<Node> {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly desk: Desk) {
    desk.onChange.on(() => {
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        this.changed.fire();
      }, REFRESH_MS);
    });
  }

  async getChildren(node?: Node): Promise<Node[]> {
    if (node) {
      return node.type === "group" ? [...node.sessions] : [];
    }
    try {
      const here = withLive((await this.desk.listSessions()).map(nodeOf), this.desk.sessionsHere, this.desk);
      const others = groupsOf(this.desk.liveSessions.filter((each) => each.workspace !== this.desk.root));
      return [...here, ...others];
    } catch {
      return []; // the connection went away; it comes back with a change
    }
  }

  getTreeItem(node: Node): vscode.TreeItem {
    if (node.type === "group") {
      const item = new vscode.TreeItem(oneLine(node.label, 80), vscode.TreeItemCollapsibleState.Expanded);
      item.iconPath = new vscode.ThemeIcon("folder");
      return item;
    }
    const item = new vscode.TreeItem(oneLine(node.title || "New session", 80));
    const isCurrent = node.sessionId === this.desk.conversation?.sessionId;
    item.id = node.sessionId;
    item.iconPath = new vscode.ThemeIcon(STATE_ICONS[node.state] ?? (isCurrent ? "comment-discussion" : "comment"));
    item.description = [isCurrent ? "current" : "", stateWords(node.state), ageOf(node.updatedAt)]
      .filter(Boolean)
      .join(" · ");
    item.contextValue = "session";
    item.command = { command: "basis.openSession", title: "Open", arguments: [node] };
    return item;
  }
}

export class InboxTree implements vscode.TreeDataProvider<Ask> {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;

  constructor(private readonly desk: Desk) {
    desk.asks.onChange.on(() => this.changed.fire());
  }

  getChildren(ask?: Ask): Ask[] {
    return ask ? [] : [...this.desk.asks.pending];
  }

  getTreeItem(ask: Ask): vscode.TreeItem {
    const item = new vscode.TreeItem(oneLine(ask.title, 80));
    item.id = ask.askId;
    item.iconPath = new vscode.ThemeIcon("question");
    item.description = ask.workspace === this.desk.root ? "" : oneLine(ask.workspace, 60);
    // A string: a tooltip that is no Markdown can't hold a link.
    item.tooltip = oneLine(ask.description || ask.title, 500);
    item.contextValue = "ask";
    item.command = { command: "basis.showAsk", title: "Show", arguments: [ask.askId] };
    return item;
  }
}

function nodeOf(info: SessionInfo): SessionNode {
  const { sessionId, title, state, updatedAt } = info;
  return { type: "session", sessionId, title, state: state.kind, updatedAt };
}

function liveNode(summary: SessionSummary): SessionNode {
  const { sessionId, title, state, updatedAt } = summary;
  return { type: "session", sessionId, title, state, updatedAt };
}

/** Live ones are newer than any list; one that nobody prompted is in no list, and only worth a line if it is at hand. */
function withLive(listed: SessionNode[], live: readonly SessionSummary[], desk: Desk): SessionNode[] {
  const byId = new Map(live.map((each) => [each.sessionId, liveNode(each)]));
  const known = listed.map((each) => byId.get(each.sessionId) ?? each);
  const ids = new Set(listed.map((each) => each.sessionId));
  const current = desk.conversation?.sessionId ?? "";
  const unlisted = ids.has(current) ? undefined : byId.get(current);
  return unlisted ? [unlisted, ...known] : known;
}

function groupsOf(live: readonly SessionSummary[]): GroupNode[] {
  const groups = new Map<string, SessionNode[]>();
  for (const each of live) {
    groups.set(each.workspace, [...(groups.get(each.workspace) ?? []), liveNode(each)]);
  }
  return [...groups].map(([label, sessions]) => ({ type: "group", label, sessions }));
}

function ageOf(time: string): string {
  const minutes = Math.floor((Date.now() - Date.parse(time)) / 60_000);
  if (!(minutes >= 1)) {
    return "now";
  }
  if (minutes < 60) {
    return `${minutes} min`;
  }
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`;
}
