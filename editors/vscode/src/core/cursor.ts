/**
 * Where a window stands in a session's numbered events. Numbers start at 1 and have no holes, so one integer says what was
 * seen, what is old and whether something is missing.
 */

import type { Seq } from "../protocol.gen";

export class Cursor {
  seen: Seq | undefined;

  /** What to do with event `seq`: show it, drop it, or attach again because something before it is missing. */
  take(seq: Seq): "next" | "old" | "gap" {
    if (this.seen === undefined || seq === this.seen + 1) {
      this.seen = seq;
      return "next";
    }
    return seq <= this.seen ? "old" : "gap";
  }

  /** Take the answer to an attach: events above `afterSeq` follow or, with a snapshot, those above `seq`. */
  attached(afterSeq: Seq | undefined, seq: Seq, hasSnapshot: boolean): void {
    this.seen = hasSnapshot || afterSeq === undefined ? seq : afterSeq;
  }
}
