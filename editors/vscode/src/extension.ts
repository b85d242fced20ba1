/** Wires the parts together. No logic here: see `core/` for what can be tested without an editor, `ui/` for what paints. */

import { randomUUID } from "node:crypto";

import * as vscode from "vscode";

import { findLog, findSocket } from "./core/address";
import { Desk } from "./core/desk";
import { snapshotOf } from "./core/environment";
import { CannotStart } from "./core/errors";
import { helloOf } from "./core/handshake";
import { Launcher } from "./core/launch";
import { Link } from "./core/link";
import { Actions } from "./ui/actions";
import { ChatView } from "./ui/chat";
import { registerCommands } from "./ui/commands";
import { Documents } from "./ui/documents";
import { daemonCommand, mayStartDaemon } from "./ui/settings";
import { showStatus } from "./ui/statusBar";
import { Toasts } from "./ui/toasts";
import { InboxTree, SessionsTree } from "./ui/trees";

let desk: Desk | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Basis", { log: true });
  const clientId = windowId(context.workspaceState);
  const launcher = new Launcher(daemonCommand, process.env, () => ({
    socket: findSocket(process.env),
    log: findLog(process.env),
  }));
  const link = new Link({
    socket: () => findSocket(process.env),
    hello: helloOf(clientId, String((context.extension.packageJSON as { version?: unknown }).version)),
    start: () => (mayStartDaemon() ? () => launcher.start() : undefined),
    trace: (direction, message) => log.trace(direction, message.slice(0, 4000)),
  });
  const memory = context.workspaceState;
  const current = (desk = new Desk({
    link,
    clientId,
    memory: { get: (key) => memory.get<string>(`basis.${key}`), set: (key, value) => void memory.update(`basis.${key}`, value) },
    folder: () => vscode.workspace.workspaceFolders?.find((each) => each.uri.scheme === "file")?.uri.fsPath,
    environment: () => snapshotOf(process.env),
    isTrusted: () => vscode.workspace.isTrusted,
    onProblem: (error) => actions.report(error),
  }));
  const connect = async (): Promise<void> => {
    await link.connect({ start: true });
    if (link.state.phase === "disconnected") {
      throw new CannotStart(link.state.why);
    }
    if (current.canAct && current.workspace === undefined) {
      await current.openWorkspace();
    }
  };
  const documents = new Documents();
  const actions = new Actions(current, documents, log, connect, clientId);
  const chat = new ChatView(current, context.extensionUri, actions, () => void link.connect({ start: true }));
  chat.restoreDraft(memory.get<string>("basis.draft") ?? "");
  new Toasts(current, actions);
  link.onState.on((state) => log.info(state.phase, state.phase === "connected" ? state.server.daemon.pid : state.why));

  const inbox = vscode.window.createTreeView("basis.inbox", { treeDataProvider: new InboxTree(current) });
  current.asks.onChange.on(() => {
    const count = current.asks.pending.length;
    inbox.badge = count ? { value: count, tooltip: `${count} waiting for you` } : undefined;
  });
  context.subscriptions.push(
    log,
    inbox,
    chat,
    documents.register(),
    showStatus(current),
    vscode.window.registerWebviewViewProvider(ChatView.id, chat),
    vscode.window.registerTreeDataProvider("basis.sessions", new SessionsTree(current)),
    registerCommands({ desk: current, actions, chat, log, connect }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void actions.guard(() => current.refresh())),
    vscode.workspace.onDidChangeWorkspaceFolders(() => void actions.guard(() => current.refresh())),
  );
  // Join a daemon that runs; start none before anybody asks for something.
  void link.connect({ start: false });
}

/** The window goes; what runs in the daemon goes on. */
export async function deactivate(): Promise<void> {
  await desk?.leave();
}

/** Stable across reloads of this window, so that the others don't see it leave and come back. */
function windowId(memory: vscode.Memento): string {
  const known = memory.get<string>("basis.clientId");
  const id = known ?? `vscode-${randomUUID()}`;
  if (known === undefined) {
    void memory.update("basis.clientId", id);
  }
  return id;
}
