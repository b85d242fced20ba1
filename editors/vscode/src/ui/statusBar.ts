/** The status bar item: one line of what goes on, and the way to everything else. */

import * as vscode from "vscode";

import type { Desk } from "../core/desk";
import type { StatusKind } from "../core/status";
import { oneLine } from "../core/visible";

const ICONS: Readonly<Record<StatusKind, string>> = {
  disconnected: "debug-disconnect",
  connecting: "loading~spin",
  idle: "circle-large-outline",
  working: "sync~spin",
  waiting_person: "bell-dot",
  waiting_provider: "cloud",
  interrupted: "debug-pause",
};

export function showStatus(desk: Desk): vscode.Disposable {
  const item = vscode.window.createStatusBarItem("basis.status", vscode.StatusBarAlignment.Left, 0);
  item.name = "Basis";
  item.command = "basis.menu";
  const paint = (): void => {
    const status = desk.status;
    item.text = `$(${ICONS[status.kind]}) Basis: ${status.text}`;
    item.tooltip = tooltip(desk, status.detail);
    item.backgroundColor =
      status.kind === "waiting_person" ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  };
  const listening = desk.onChange.on(paint);
  paint();
  item.show();
  return vscode.Disposable.from(item, listening);
}

function tooltip(desk: Desk, detail: string): string {
  const state = desk.link.state;
  const daemon = state.phase === "connected" ? `basis-daemon ${state.server.daemon.version}, pid ${state.server.daemon.pid}` : "";
  const { path, model, provider } = desk.workspace ?? {};
  return [daemon, path, [provider, model].filter(Boolean).join(" / "), detail]
    .filter((line): line is string => Boolean(line))
    .map((line) => oneLine(line, 300))
    .join("\n");
}
