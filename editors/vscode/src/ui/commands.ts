/** The commands under "Basis:". Each says what it needs; doing it is `actions`' and the desk's. */

import * as vscode from "vscode";

import { findLog } from "../core/address";
import type { Desk } from "../core/desk";
import { oneLine } from "../core/visible";
import { stateWords } from "../core/words";
import type { Ask, Decision } from "../protocol.gen";
import type { Actions } from "./actions";
import type { ChatView } from "./chat";
import { fileOf, selectionOf } from "./context";
import type { SessionNode } from "./trees";

interface Parts {
  readonly desk: Desk;
  readonly actions: Actions;
  readonly chat: ChatView;
  readonly log: vscode.LogOutputChannel;
  /** Connects, starting a daemon where that is allowed. Rejects when there is none. */
  readonly connect: () => Promise<void>;
}

type Command = (...args: never[]) => unknown;

export function registerCommands(parts: Parts): vscode.Disposable {
  const commands = { ...sessionCommands(parts), ...contextCommands(parts), ...askCommands(parts), ...daemonCommands(parts) };
  const registered = Object.entries<Command>(commands).map(([name, run]) =>
    vscode.commands.registerCommand(`basis.${name}`, (...args: unknown[]) =>
      parts.actions.guard(() => run(...(args as never[]))),
    ),
  );
  return vscode.Disposable.from(...registered);
}

function sessionCommands({ desk, actions, chat, connect }: Parts): Record<string, Command> {
  return {
    openChat: () => chat.reveal(),
    newSession: async () => {
      await connect();
      await desk.newConversation();
      await chat.reveal();
    },
    openSession: async (node?: SessionNode) => {
      await connect();
      const sessionId = node?.sessionId ?? (await pickSession(desk));
      if (sessionId !== undefined) {
        await desk.openConversation(sessionId);
        await chat.reveal();
      }
    },
    renameSession: async () => {
      const title = await vscode.window.showInputBox({ title: "Basis: title", value: desk.conversation?.title ?? "" });
      if (title?.trim()) {
        await desk.conversation?.rename(title.trim());
      }
    },
    deleteSession: async (node: SessionNode | undefined) => {
      desk.requireTrust();
      const sessionId = node?.sessionId ?? (await pickSession(desk));
      const title = oneLine(node?.title || "this session", 80);
      const question = `Delete “${title}” for good, for every client?`;
      if (sessionId && (await vscode.window.showWarningMessage(question, { modal: true }, "Delete"))) {
        await desk.link.request("basis/session/delete", { sessionId });
        desk.onChange.emit();
      }
    },
    stop: () => actions.stop(),
    cancel: () => {
      desk.requireTrust();
      return desk.conversation?.cancel();
    },
    resume: () => {
      desk.requireTrust();
      return desk.conversation?.resume();
    },
    steer: async () => {
      const text = await vscode.window.showInputBox({ title: "Basis: tell the running turn" });
      if (text) {
        await actions.prompt(text, [], true);
      }
    },
  };
}

function contextCommands({ chat }: Parts): Record<string, Command> {
  return {
    sendSelection: async () => {
      const editor = vscode.window.activeTextEditor;
      if (!editor) {
        throw new Error("Open a file and select something first.");
      }
      chat.attach(selectionOf(editor));
      await chat.reveal();
    },
    addFile: async (uri?: vscode.Uri) => {
      const chosen = uri ?? vscode.window.activeTextEditor?.document.uri;
      if (!chosen) {
        throw new Error("Open a file first.");
      }
      chat.attach(fileOf(chosen));
      await chat.reveal();
    },
  };
}

function askCommands({ desk, actions }: Parts): Record<string, Command> {
  const askOf = (which: string | Ask | undefined): Ask | undefined =>
    typeof which === "string" ? desk.asks.get(which) : (which ?? actions.nextAsk());
  return {
    approveNext: () => actions.answer(actions.nextAsk(), "allow"),
    approveForSession: () => actions.answer(actions.nextAsk(), "allow", "session"),
    rejectNext: () => actions.deny(actions.nextAsk()),
    answerAsk: (askId: string, decision: Decision) => actions.answer(desk.asks.get(askId), decision),
    allowAsk: (ask: Ask) => actions.answer(askOf(ask), "allow"),
    denyAsk: (ask: Ask) => actions.deny(askOf(ask)),
    showAsk: async (which?: string | Ask) => {
      const ask = askOf(which);
      if (ask) {
        await actions.showAsk(ask);
      }
    },
    showInbox: () => vscode.commands.executeCommand("basis.inbox.focus"),
  };
}

function daemonCommands({ desk, actions, log, connect }: Parts): Record<string, Command> {
  return {
    connect: () => connect(),
    showLog: () => log.show(),
    showDaemonLog: async () => {
      const document = await vscode.workspace.openTextDocument(vscode.Uri.file(findLog(process.env)));
      await vscode.window.showTextDocument(document);
    },
    menu: async () => {
      const ask = actions.nextAsk();
      const items = [
        ...(ask ? [entry("$(question) " + oneLine(ask.title, 60).replaceAll("$(", "$ ("), "basis.showAsk", ask.askId)] : []),
        ...(ask ? [entry("$(check) Approve next", "basis.approveNext"), entry("$(x) Reject next…", "basis.rejectNext")] : []),
        ...(desk.conversation?.isBusy ? [entry("$(debug-stop) Stop", "basis.stop")] : []),
        ...(desk.link.state.phase === "connected" ? [] : [entry("$(plug) Connect", "basis.connect")]),
        entry("$(comment) Open chat", "basis.openChat"),
        entry("$(add) New session", "basis.newSession"),
        entry("$(list-unordered) Open session…", "basis.openSession"),
        entry("$(inbox) Show inbox", "basis.showInbox"),
        entry("$(output) Show log", "basis.showLog"),
        entry("$(file) Open the daemon's log", "basis.showDaemonLog"),
      ];
      const chosen = await vscode.window.showQuickPick(items, { title: `Basis: ${desk.status.text}` });
      if (chosen) {
        await vscode.commands.executeCommand(chosen.command, ...chosen.args);
      }
    },
  };
}

function entry(label: string, command: string, ...args: unknown[]): vscode.QuickPickItem & { command: string; args: unknown[] } {
  return { label, command, args };
}

async function pickSession(desk: Desk): Promise<string | undefined> {
  const sessions = await desk.listSessions();
  const items = sessions.map((each) => ({
    label: oneLine(each.title || "New session", 80).replaceAll("$(", "$ ("),
    description: stateWords(each.state.kind, each.state.until),
    sessionId: each.sessionId,
  }));
  return (await vscode.window.showQuickPick(items, { title: "Basis: open a session" }))?.sessionId;
}
