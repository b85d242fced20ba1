/** What goes along with a prompt: selections, files, the unsaved text of a buffer. */

import type { InputBlock } from "../protocol.gen";

export interface Attachment {
  readonly label: string;
  /** What is sent; worked out when the prompt is, so that it has the newest text. */
  block(): InputBlock | Promise<InputBlock>;
}

/** Context first, then what the person says about it. */
export async function inputOf(text: string, attachments: readonly Attachment[]): Promise<InputBlock[]> {
  const blocks = await Promise.all(attachments.map((each) => each.block()));
  return text.trim() ? [...blocks, { type: "text", text }] : blocks;
}

/** `a/b.py:3-9`, or `a/b.py:3` for one line. Lines are counted from 0 in, from 1 out. */
export function placeOf(path: string, firstLine: number, lastLine: number): string {
  return firstLine === lastLine ? `${path}:${firstLine + 1}` : `${path}:${firstLine + 1}-${lastLine + 1}`;
}
