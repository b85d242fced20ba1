/** What of the editor goes along with a prompt: the selection as it was, a file as it is when the prompt is sent. */

import * as vscode from "vscode";

import type { Attachment } from "../core/prompting";
import { placeOf } from "../core/prompting";
import type { Range } from "../protocol.gen";

/** The selection; the line the cursor is on when nothing is selected. */
export function selectionOf(editor: vscode.TextEditor): Attachment {
  const { document, selection } = editor;
  const chosen = selection.isEmpty ? document.lineAt(selection.active.line).range : selection;
  const block = {
    type: "selection",
    uri: document.uri.toString(),
    range: rangeOf(chosen),
    text: document.getText(chosen),
  } as const;
  const path = vscode.workspace.asRelativePath(document.uri);
  return { label: placeOf(path, chosen.start.line, chosen.end.line), block: () => block };
}

/** A file. Its text goes along only where the disk does not have it: unsaved, or never saved. */
export function fileOf(uri: vscode.Uri): Attachment {
  const find = (): vscode.TextDocument | undefined =>
    vscode.workspace.textDocuments.find((each) => each.uri.toString() === uri.toString());
  const isUnsaved = (document: vscode.TextDocument | undefined): document is vscode.TextDocument =>
    document !== undefined && (document.isDirty || document.isUntitled);
  return {
    label: `${vscode.workspace.asRelativePath(uri)}${isUnsaved(find()) ? " (unsaved)" : ""}`,
    block: () => {
      const document = find();
      const text = isUnsaved(document) ? { text: document.getText() } : {};
      return { type: "resource", uri: uri.toString(), ...text };
    },
  };
}

function rangeOf(range: vscode.Range): Range {
  const { start, end } = range;
  return {
    start: { line: start.line, character: start.character },
    end: { line: end.line, character: end.character },
  };
}
