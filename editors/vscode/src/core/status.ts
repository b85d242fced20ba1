/** What a window shows of the daemon in one line. */

import type { SessionSummary } from "../protocol.gen";
import type { LinkState } from "./link";

export type StatusKind =
  | "disconnected"
  | "connecting"
  | "idle"
  | "working"
  | "waiting_person"
  | "waiting_provider"
  | "interrupted";

export interface Status {
  readonly kind: StatusKind;
  readonly text: string;
  readonly detail: string;
}

/** What needs the person most comes first. */
export function statusOf(link: LinkState, pendingAsks: number, sessions: readonly SessionSummary[]): Status {
  if (link.phase !== "connected") {
    return { kind: link.phase, text: link.phase, detail: link.why };
  }
  if (pendingAsks > 0) {
    return { kind: "waiting_person", text: `waiting for you (${pendingAsks})`, detail: "" };
  }
  const count = (kind: string): number => sessions.filter((each) => each.state === kind).length;
  if (count("waiting_provider") > 0) {
    return { kind: "waiting_provider", text: "waiting for the provider", detail: "" };
  }
  const working = count("working") + count("queued");
  if (working > 0) {
    return { kind: "working", text: working > 1 ? `working (${working})` : "working", detail: "" };
  }
  return count("interrupted") > 0
    ? { kind: "interrupted", text: "interrupted", detail: "a turn was cut short and can be resumed" }
    : { kind: "idle", text: "idle", detail: "" };
}
