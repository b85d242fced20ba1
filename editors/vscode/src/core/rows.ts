/** What a transcript is painted from: plain values that pass between the extension and its webview. */

export type RowKind = "user" | "assistant" | "reasoning" | "tool" | "notice" | "error" | "ask";

export interface RowButton {
  readonly id: string;
  readonly label: string;
  readonly isPrimary?: boolean;
}

/** One entry of the transcript. Every text was made visible already and is to be shown as text. */
export interface Row {
  readonly id: string;
  readonly kind: RowKind;
  /** Who or what: "you", "nvim@host", a tool's name. */
  readonly head: string;
  readonly text: string;
  /** Characters of `text` that were left out. */
  readonly cut: number;
  /** One word for a style: running, ok, failed, waiting, closed. */
  readonly state: string;
  readonly buttons: readonly RowButton[];
}

export type Change =
  | { readonly type: "reset"; readonly rows: readonly Row[]; readonly hasOlder: boolean }
  | { readonly type: "older"; readonly rows: readonly Row[]; readonly hasOlder: boolean }
  | { readonly type: "put"; readonly row: Row }
  | { readonly type: "append"; readonly id: string; readonly text: string }
  | { readonly type: "remove"; readonly id: string };

/** What the header and the prompt box show. */
export interface Heading {
  readonly title: string;
  /** idle, working, waiting_person, … ; empty while there is no session. */
  readonly state: string;
  /** When its wait ends, where that is known. */
  readonly until: string;
  readonly detail: string;
  /** Set while there is no connection, or nothing may be done: shown across the top. */
  readonly banner: string;
  readonly canPrompt: boolean;
  readonly attachments: readonly string[];
  readonly others: readonly string[];
}

export type ToWebview =
  | { readonly type: "changes"; readonly changes: readonly Change[] }
  | { readonly type: "heading"; readonly heading: Heading }
  | { readonly type: "draft"; readonly text: string }
  | { readonly type: "focus" };

export type FromWebview =
  | { readonly type: "ready" }
  | { readonly type: "draft"; readonly text: string }
  | { readonly type: "prompt"; readonly text: string; readonly steer: boolean }
  | { readonly type: "stop" }
  | { readonly type: "press"; readonly row: string; readonly button: string }
  | { readonly type: "older" }
  | { readonly type: "detach"; readonly index: number };
