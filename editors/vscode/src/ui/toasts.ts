/**
 * One notification at a time for the ask that is next, gone when it is answered anywhere. A progress notification is used:
 * the only kind that a program can take away again.
 */

import * as vscode from "vscode";

import type { Closed } from "../core/asks";
import type { Desk } from "../core/desk";
import { oneLine, plain } from "../core/visible";
import type { Ask } from "../protocol.gen";
import type { Actions } from "./actions";
import { notifiesOfAsks } from "./settings";

export class Toasts {
  private current: { readonly askId: string; close(): void } | undefined;

  constructor(
    private readonly desk: Desk,
    private readonly actions: Actions,
  ) {
    desk.onChange.on(() => this.update());
    desk.asks.onClosed.on((closed) => this.closed(closed));
  }

  private update(): void {
    const ask = this.desk.canAct && notifiesOfAsks() ? this.actions.nextAsk() : undefined;
    if (ask && this.current === undefined) {
      this.show(ask);
    }
  }

  private show(ask: Ask): void {
    let close = (): void => undefined;
    const over = new Promise<void>((resolve) => (close = resolve));
    this.current = { askId: ask.askId, close };
    const link = (label: string, command: string, ...rest: string[]): string =>
      `[${label}](command:${command}?${encodeURIComponent(JSON.stringify([ask.askId, ...rest]))})`;
    const links = [
      link("Allow", "basis.answerAsk", "allow"),
      link("Deny", "basis.answerAsk", "deny"),
      link("Show", "basis.showAsk"),
    ].join(" · ");
    void vscode.window.withProgress(
      { location: vscode.ProgressLocation.Notification, title: "Basis asks" },
      (progress) => {
        progress.report({ message: `${plain(ask.title, 160)} — ${links}` });
        return over;
      },
    );
  }

  private closed({ ask, by, isMine }: Closed): void {
    this.finish(ask.askId);
    if (by && !isMine) {
      vscode.window.setStatusBarMessage(`Basis: answered by ${oneLine(by.client, 60)}`, 8000);
    }
  }

  private finish(askId: string): void {
    if (this.current?.askId === askId) {
      this.current.close();
      this.current = undefined;
      this.update();
    }
  }
}
