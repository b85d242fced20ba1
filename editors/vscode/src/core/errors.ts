/** What can go wrong between an editor and the daemon, told apart by what the person should do. */

import type { ErrorData } from "../protocol.gen";

/** The daemon answered with an error. `kind` is what to decide by. */
export class Refusal extends Error {
  readonly kind: string;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    readonly code: number,
    message: string,
    data: Partial<ErrorData> | undefined,
  ) {
    super(data?.message ?? message);
    this.kind = data?.kind ?? "";
    this.hint = data?.hint;
    this.details = data?.details ?? {};
  }
}

/** There is no connection, or it broke before the answer came: whether the request took effect is not known. */
export class ConnectionLost extends Error {}

/** No daemon runs and none may, or can, be started. */
export class CannotStart extends Error {
  constructor(
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** Nothing happens in a folder that is not trusted. */
export class Restricted extends Error {
  constructor() {
    super("This folder is in Restricted Mode: conversations can be read, but nothing can be sent or approved.");
  }
}

/** One sentence for a person, with what to do about it where that is known. */
export function sentence(error: unknown): string {
  if (error instanceof Refusal || error instanceof CannotStart) {
    return error.hint ? `${error.message} (${error.hint})` : error.message;
  }
  return error instanceof Error ? error.message : String(error);
}
