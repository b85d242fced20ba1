/** The protocol's words as a person reads them. */

/** A session's state in words for a person. */
export function stateWords(kind: string): string {
  return kind === "waiting_person" ? "waiting for you" : kind === "waiting_provider" ? "waiting for the provider" : kind;
}
