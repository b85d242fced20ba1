/** Read-only texts shown in native editors: both sides of a proposed change, long outputs. Nothing is written to disk. */

import * as vscode from "vscode";

import { oneLine } from "../core/visible";
import type { FileDiff } from "../protocol.gen";

const SCHEME = "basis";
const KEPT = 100;

export class Documents implements vscode.TextDocumentContentProvider {
  private readonly texts = new Map<string, string>();
  private count = 0;

  register(): vscode.Disposable {
    return vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "This text is no longer kept. Open it again from the conversation.";
  }

  async showText(title: string, text: string): Promise<void> {
    await vscode.window.showTextDocument(this.keep(title, text), { preview: true });
  }

  /** The native diff editor; the patch alone where a file is too large to come whole. */
  async showDiff(file: FileDiff, whose: string): Promise<void> {
    if (file.new === undefined && file.old === undefined) {
      await this.showText(`${file.path}.diff`, file.patch);
      return;
    }
    const before = this.keep(file.path, file.old ?? "");
    const after = this.keep(file.path, file.new ?? "");
    const title = `${oneLine(vscode.workspace.asRelativePath(file.path), 80)} (${whose})`;
    await vscode.commands.executeCommand("vscode.diff", before, after, title, { preview: true });
  }

  /** The path keeps its ending, so the editor knows the language. */
  private keep(path: string, text: string): vscode.Uri {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${this.count++}/${path.replace(/^\/+/, "")}` });
    this.texts.set(uri.toString(), text);
    const oldest = this.texts.keys().next().value;
    if (this.texts.size > KEPT && oldest !== undefined) {
      this.texts.delete(oldest);
    }
    return uri;
  }
}
