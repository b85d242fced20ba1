/** The webview's side of the chat: paints what it is sent, tells what was pressed and typed. Decides nothing. */

import type { FromWebview, Heading, ToWebview } from "../core/rows";
import { stateWords } from "../core/words";
import { RowsView } from "./rows";

declare function acquireVsCodeApi(): { postMessage(message: FromWebview): void };

const BUSY = new Set(["working", "queued", "waiting_person", "waiting_provider"]);

const editor = acquireVsCodeApi();
const find = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const prompt = find<HTMLTextAreaElement>("prompt");
const rows = new RowsView(find("rows"), {
  onPress: (row, button) => editor.postMessage({ type: "press", row, button }),
  onOlderNeeded: () => editor.postMessage({ type: "older" }),
});

window.addEventListener("message", ({ data }: MessageEvent<ToWebview>) => {
  switch (data.type) {
    case "changes":
      rows.apply(data.changes);
      break;
    case "heading":
      showHeading(data.heading);
      break;
    case "draft":
      if (prompt.value !== data.text) {
        prompt.value = data.text;
      }
      break;
    case "focus":
      prompt.focus();
      break;
  }
});

prompt.addEventListener("input", () => editor.postMessage({ type: "draft", text: prompt.value }));
prompt.addEventListener("keydown", (event) => {
  // Not while an input method is composing: Enter ends the composition then.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send(false);
  }
});
find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send(false);
});
find("steer").addEventListener("click", () => send(true));
find("stop").addEventListener("click", () => editor.postMessage({ type: "stop" }));

function send(steer: boolean): void {
  if (prompt.value.trim() || find("attachments").childElementCount) {
    rows.follow();
    editor.postMessage({ type: "prompt", text: prompt.value, steer });
  }
}

function showHeading(heading: Heading): void {
  const isBusy = BUSY.has(heading.state);
  find("title").textContent = heading.title;
  find("state").textContent = [stateWords(heading.state, heading.until), heading.detail].filter(Boolean).join(": ");
  find("others").textContent = heading.others.length ? `with ${heading.others.join(", ")}` : "";
  find("banner").textContent = heading.banner;
  find("banner").hidden = heading.banner === "";
  find<HTMLButtonElement>("send").disabled = !heading.canPrompt;
  find("send").textContent = isBusy ? "Queue" : "Send";
  find("steer").hidden = find("stop").hidden = !isBusy;
  find("attachments").replaceChildren(...heading.attachments.map(chip));
}

function chip(label: string, index: number): HTMLElement {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "chip secondary";
  made.textContent = `${label} ×`;
  made.setAttribute("aria-label", `Remove ${label}`);
  made.addEventListener("click", () => editor.postMessage({ type: "detach", index }));
  return made;
}

editor.postMessage({ type: "ready" });
