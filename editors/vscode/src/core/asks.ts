/** The questions that wait, of all sessions. Owns what is pending and who answered; whoever shows one listens here. */

import type { Actor, Ask, AskDecided, Decision, Scope } from "../protocol.gen";
import type { Requester } from "./conversation";
import { Refusal } from "./errors";
import { Signal } from "./signal";

export interface Closed {
  readonly ask: Ask;
  /** Unset when it was closed while nobody listened. */
  readonly by?: Actor;
  readonly isMine: boolean;
}

export class AskBox {
  readonly onChange = new Signal<void>();
  readonly onOpened = new Signal<Ask>();
  readonly onClosed = new Signal<Closed>();
  private readonly asks = new Map<string, Ask>();
  private readonly answered = new Set<string>();

  constructor(private readonly link: Requester) {}

  /** Oldest first: the order in which they are to be answered. */
  get pending(): readonly Ask[] {
    return [...this.asks.values()];
  }

  get(askId: string): Ask | undefined {
    return this.asks.get(askId);
  }

  /** All that are pending, as the daemon lists them after a connect. */
  replace(pending: readonly Ask[]): void {
    const ids = new Set(pending.map((each) => each.askId));
    for (const ask of this.pending) {
      if (!ids.has(ask.askId)) {
        this.close(ask.askId);
      }
    }
    pending.forEach((each) => this.open(each));
  }

  open(ask: Ask): void {
    if (!this.asks.has(ask.askId)) {
      this.asks.set(ask.askId, ask);
      this.onOpened.emit(ask);
      this.onChange.emit();
    }
  }

  close(askId: string, by?: Actor): void {
    const ask = this.asks.get(askId);
    if (ask) {
      this.asks.delete(askId);
      this.onClosed.emit({ ask, isMine: this.answered.delete(askId), ...(by ? { by } : {}) });
      this.onChange.emit();
    }
  }

  /** The first answer wins. Resolves to who was faster, if somebody was. Rejects as requests do. */
  async answer(askId: string, decision: Decision, scope: Scope, reason?: string): Promise<AskDecided | undefined> {
    this.answered.add(askId);
    try {
      await this.link.request("basis/ask/answer", { askId, decision, scope, ...(reason ? { reason } : {}) });
      return undefined;
    } catch (error) {
      this.answered.delete(askId);
      if (error instanceof Refusal && error.kind === "ask_decided") {
        const decided = error.details as unknown as AskDecided;
        this.close(askId, decided.by);
        return decided;
      }
      throw error;
    }
  }
}
