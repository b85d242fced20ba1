/** What a person can do, whatever they pressed to do it. Every failure ends here, as one sentence. */

import * as vscode from "vscode";

import type { Conversation } from "../core/conversation";
import type { Desk } from "../core/desk";
import { ConnectionLost, sentence } from "../core/errors";
import type { Attachment } from "../core/prompting";
import { inputOf } from "../core/prompting";
import { oneLine, plain } from "../core/visible";
import type { Ask, Decision, Scope } from "../protocol.gen";
import type { Documents } from "./documents";

const RESULT_PAGE_BYTES = 1024 * 1024;
const RESULT_PAGES = 32;

export class Actions {
  constructor(
    private readonly desk: Desk,
    private readonly documents: Documents,
    private readonly log: vscode.LogOutputChannel,
    private readonly connect: () => Promise<void>,
    readonly clientId: string,
  ) {}

  /** Runs something for the person; says so if it fails. A command must never let a rejection escape. */
  async guard<T>(work: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      this.report(error);
      return undefined;
    }
  }

  report(error: unknown): void {
    this.log.error(error instanceof Error ? error : String(error));
    // A lost connection has its banner; a box for every request that was under way would bury the person.
    if (!(error instanceof ConnectionLost)) {
      void vscode.window.showErrorMessage(`Basis: ${plain(sentence(error), 500)}`);
    }
  }

  async prompt(text: string, attachments: readonly Attachment[], steer: boolean): Promise<void> {
    this.desk.requireTrust();
    await this.connect();
    const conversation = await this.desk.ensureConversation();
    const input = await inputOf(text, attachments);
    if (input.length) {
      await conversation.prompt(input, { steer });
    }
  }

  async stop(): Promise<void> {
    this.desk.requireTrust();
    await this.desk.conversation?.stop();
  }

  /** The ask a person would expect "next" to mean: the oldest of the session at hand, else of this folder. */
  nextAsk(): Ask | undefined {
    const pending = this.desk.asks.pending;
    return (
      pending.find((each) => each.sessionId === this.desk.conversation?.sessionId) ??
      pending.find((each) => each.workspace === this.desk.root)
    );
  }

  async answer(ask: Ask | undefined, decision: Decision, scope: Scope = "once", reason?: string): Promise<void> {
    this.desk.requireTrust();
    if (!ask) {
      void vscode.window.showInformationMessage("Basis: nothing waits for you here.");
      return;
    }
    const decided = await this.desk.asks.answer(ask.askId, decision, scope, reason);
    if (decided) {
      const word = decided.decision === "allow" ? "allowed" : "denied";
      vscode.window.setStatusBarMessage(`Basis: ${word} by ${oneLine(decided.by.client, 60)} before you`, 8000);
    }
  }

  async deny(ask: Ask | undefined): Promise<void> {
    this.desk.requireTrust();
    const reason = await vscode.window.showInputBox({
      title: `Basis: deny “${oneLine(ask?.title ?? "", 80)}”`,
      prompt: "Why not? The model reads it. Empty is fine.",
    });
    if (reason !== undefined) {
      await this.answer(ask, "deny", "once", reason);
    }
  }

  /** A button of the transcript. Its id was given out by `transcript.ts`; anything else does nothing. */
  async press(row: string, button: string): Promise<void> {
    const conversation = this.desk.conversation;
    const [what, number] = button.split(":");
    if (!conversation) {
      return;
    }
    switch (what) {
      case "answer": {
        const ask = conversation.transcript.askOf(row);
        const option = ask?.options[Number(number)];
        if (ask && option) {
          await this.answer(ask, option.decision, option.scope);
        }
        break;
      }
      case "diff":
        await this.showDiff(conversation, row, Number(number));
        break;
      case "more":
        if (conversation.transcript.expand(row)) {
          conversation.onChange.emit();
        }
        break;
      case "open":
        await this.documents.showText("text.txt", conversation.transcript.textOf(row) ?? "");
        break;
      case "result":
        await this.documents.showText("output.txt", await this.resultOf(conversation.transcript.resultIdOf(row) ?? ""));
        break;
      default:
        break;
    }
  }

  /** What an ask is about, in the best piece the editor has for it. */
  async showAsk(ask: Ask): Promise<void> {
    const preview = ask.preview;
    if (preview.type === "diff") {
      for (const file of preview.files) {
        await this.documents.showDiff(file, "proposed by Basis");
      }
    } else if (preview.type === "command") {
      await this.documents.showText("command.sh", `${preview.command}\n\n# in ${preview.cwd}\n`);
    } else {
      await this.documents.showText("call.json", JSON.stringify(preview.input, null, 2) ?? "");
    }
  }

  private async showDiff(conversation: Conversation, row: string, index: number): Promise<void> {
    const file = conversation.transcript.diffsOf(row)[index];
    const isProposal = conversation.transcript.askOf(row) !== undefined;
    if (file) {
      await this.documents.showDiff(file, isProposal ? "proposed by Basis" : "changed by Basis");
    }
  }

  private async resultOf(resultId: string): Promise<string> {
    const pages: string[] = [];
    let offset: number | undefined = 0;
    while (offset !== undefined && pages.length < RESULT_PAGES) {
      const page: { text: string; nextOffset?: number } = await this.desk.link.request("basis/tool/result", {
        resultId,
        offset,
        limit: RESULT_PAGE_BYTES,
      });
      pages.push(page.text);
      offset = page.nextOffset;
    }
    return offset === undefined ? pages.join("") : `${pages.join("")}\n… (longer than is shown)\n`;
  }
}
