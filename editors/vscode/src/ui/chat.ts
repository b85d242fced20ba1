/**
 * The chat view: the transcript and the prompt box in a webview. Owns what is sent to it and when; what a button does is
 * `actions`' business. The webview may come and go at any time: everything it shows is sent again when it is ready.
 */

import { randomBytes } from "node:crypto";

import * as vscode from "vscode";

import type { Conversation } from "../core/conversation";
import type { Desk } from "../core/desk";
import type { Attachment } from "../core/prompting";
import type { Change, FromWebview, Heading, ToWebview } from "../core/rows";
import { oneLine } from "../core/visible";
import type { Actions } from "./actions";

/** Between two messages to the webview; two frames, so that a fast stream costs it no more than it can paint. */
const FLUSH_MS = 33;
const SAVE_DRAFT_MS = 300;

export class ChatView implements vscode.WebviewViewProvider {
  static readonly id = "basis.chat";
  private view: vscode.WebviewView | undefined;
  private isReady = false;
  private wantsFocus = false;
  private shown = "";
  private flushTimer: NodeJS.Timeout | undefined;
  private draftTimer: NodeJS.Timeout | undefined;
  private draft = "";
  readonly attachments: Attachment[] = [];

  constructor(
    private readonly desk: Desk,
    private readonly extensionUri: vscode.Uri,
    private readonly actions: Actions,
    private readonly onNeeded: () => void,
  ) {
    desk.onChange.on(() => this.flushSoon());
    desk.onConversation.on((conversation) => this.follow(conversation));
  }

  /** What was typed before the window was reloaded, until the daemon's own is there. */
  restoreDraft(text: string): void {
    this.draft = text;
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    this.isReady = false;
    const assets = vscode.Uri.joinPath(this.extensionUri, "dist");
    view.webview.options = { enableScripts: true, localResourceRoots: [assets] };
    view.webview.html = page(view.webview, assets);
    view.webview.onDidReceiveMessage((message: FromWebview) => void this.actions.guard(() => this.received(message)));
    view.onDidDispose(() => {
      if (this.view === view) {
        this.view = undefined;
        this.isReady = false;
      }
    });
    this.onNeeded();
  }

  async reveal(): Promise<void> {
    await vscode.commands.executeCommand(`${ChatView.id}.focus`);
    this.wantsFocus = !this.isReady;
    this.post({ type: "focus" });
  }

  attach(attachment: Attachment): void {
    this.attachments.push(attachment);
    this.flushSoon();
  }

  setDraft(text: string): void {
    this.draft = text;
    this.post({ type: "draft", text });
  }

  /** Called when the extension ends: what was typed in the last moment is kept too. */
  dispose(): void {
    clearTimeout(this.flushTimer);
    clearTimeout(this.draftTimer);
  }

  // --- from the webview ---

  private async received(message: FromWebview): Promise<void> {
    switch (message.type) {
      case "ready":
        this.isReady = true;
        this.showAll();
        break;
      case "draft":
        this.draft = message.text;
        this.desk.noteDraft(message.text);
        clearTimeout(this.draftTimer);
        this.draftTimer = setTimeout(() => void this.actions.guard(() => this.saveDraft()), SAVE_DRAFT_MS);
        break;
      case "prompt":
        await this.send(message.text, message.steer);
        break;
      case "stop":
        await this.actions.stop();
        break;
      case "press":
        await this.actions.press(message.row, message.button);
        break;
      case "older":
        await this.desk.conversation?.older();
        break;
      case "detach":
        this.attachments.splice(message.index, 1);
        this.flushSoon();
        break;
      default:
        break;
    }
  }

  private async send(text: string, steer: boolean): Promise<void> {
    const taken = [...this.attachments];
    await this.actions.prompt(text, taken, steer);
    // Only now: a prompt that was refused stays in the box.
    this.attachments.splice(0, taken.length);
    clearTimeout(this.draftTimer);
    this.desk.noteDraft("");
    this.setDraft("");
    this.flushSoon();
  }

  /** A draft needs a session to be kept with; one that nobody prompts leaves no trace. */
  private async saveDraft(): Promise<void> {
    if (this.desk.link.state.phase !== "connected" || !this.desk.canAct) {
      return;
    }
    const conversation = this.draft ? await this.desk.ensureConversation() : this.desk.conversation;
    conversation?.noteDraft(this.draft);
    await conversation?.saveDraft();
  }

  // --- to the webview ---

  private follow(conversation: Conversation | undefined): void {
    if (conversation) {
      conversation.onDraft.on((text) => this.takeDraft(conversation, text));
      this.takeDraft(conversation, conversation.draftText);
    }
    this.showAll();
  }

  /** Another's draft never replaces what is being typed here. */
  private takeDraft(conversation: Conversation, text: string): void {
    if (conversation !== this.desk.conversation) {
      return;
    }
    if (text === "" && this.draft !== "") {
      conversation.noteDraft(this.draft);
      void this.actions.guard(() => this.saveDraft());
      return;
    }
    if (this.draft === "" || this.draft === text || !this.view?.visible) {
      this.setDraft(text);
    }
  }

  private showAll(): void {
    const conversation = this.desk.conversation;
    conversation?.transcript.takeChanges();
    const all: Change = conversation?.transcript.all() ?? { type: "reset", rows: [], hasOlder: false };
    this.shown = "";
    this.post({ type: "changes", changes: [all] });
    this.post({ type: "draft", text: this.draft });
    if (this.wantsFocus && this.isReady) {
      this.wantsFocus = false;
      this.post({ type: "focus" });
    }
    this.flush();
  }

  private flushSoon(): void {
    this.flushTimer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  private flush(): void {
    clearTimeout(this.flushTimer);
    this.flushTimer = undefined;
    const changes = this.desk.conversation?.transcript.takeChanges() ?? [];
    if (changes.length) {
      this.post({ type: "changes", changes });
    }
    const heading = this.heading();
    const text = JSON.stringify(heading);
    if (text !== this.shown) {
      this.shown = text;
      this.post({ type: "heading", heading });
    }
  }

  private heading(): Heading {
    const conversation = this.desk.conversation;
    return {
      title: oneLine(conversation?.title || (conversation ? "New session" : "No session"), 80),
      state: conversation?.state?.kind ?? "",
      until: conversation?.state?.until ?? "",
      detail: oneLine(conversation?.state?.detail ?? "", 120),
      banner: oneLine(this.desk.banner, 300),
      canPrompt: this.desk.canAct,
      attachments: this.attachments.map((each) => oneLine(each.label, 60)),
      others: (conversation?.clients ?? [])
        .filter((each) => each.clientId !== this.actions.clientId)
        .map((each) => oneLine(each.client, 40)),
    };
  }

  private post(message: ToWebview): void {
    if (this.isReady) {
      void this.view?.webview.postMessage(message);
    }
  }
}

/** Nothing is loaded from anywhere but the extension, and only the one script runs. */
function page(webview: vscode.Webview, assets: vscode.Uri): string {
  const nonce = randomBytes(18).toString("base64");
  const script = webview.asWebviewUri(vscode.Uri.joinPath(assets, "webview.js")).toString();
  const style = webview.asWebviewUri(vscode.Uri.joinPath(assets, "webview.css")).toString();
  const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${style}">
<title>Basis</title>
</head>
<body>
<header><span id="title"></span><span id="state"></span><span id="others"></span></header>
<div id="banner" role="alert" hidden></div>
<main id="rows" role="log" aria-live="polite" aria-label="Conversation" tabindex="0"></main>
<form id="form">
<div id="attachments"></div>
<textarea id="prompt" rows="3" aria-label="Prompt" placeholder="Ask Basis… (Enter sends, Shift+Enter breaks the line)"></textarea>
<div id="buttons">
<button type="submit" id="send">Send</button>
<button type="button" id="steer" class="secondary" hidden>Steer</button>
<button type="button" id="stop" class="secondary" hidden>Stop</button>
</div>
</form>
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
}
