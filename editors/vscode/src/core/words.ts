/** The protocol's words as a person reads them. */

/** A session's state in words for a person; `until` is when a wait ends, as the wire writes times. */
export function stateWords(kind: string, until = ""): string {
  if (kind === "waiting_provider") {
    return `waiting for the provider${until ? ` until ${clock(until)}` : ""}`;
  }
  return kind === "waiting_person" ? "waiting for you" : kind;
}

/** A time as the clock on the wall shows it; what is no time is not shown. */
function clock(at: string): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "?" : time.toTimeString().slice(0, 8);
}
