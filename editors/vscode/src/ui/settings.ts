/** The extension's settings, read when they are needed: a change holds from the next use on. */

import { homedir } from "node:os";
import { join } from "node:path";

import * as vscode from "vscode";

import type { Command } from "../core/launch";

export function daemonCommand(): Command {
  const settings = section();
  const path = settings.get<string>("daemon.path", "").trim() || "basis-daemon";
  return { path: path.startsWith("~/") ? join(homedir(), path.slice(2)) : path, args: settings.get("daemon.args", []) };
}

export function mayStartDaemon(): boolean {
  return section().get("daemon.autoStart", true);
}

export function notifiesOfAsks(): boolean {
  return section().get("notifications.asks", true);
}

function section(): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration("basis");
}
