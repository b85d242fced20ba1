/**
 * The session a window works in: attached, followed event by event across reconnects, prompted, its draft kept. Knows no
 * editor; what it shows is in `transcript`.
 */

import type {
  Actor,
  ErrorData,
  InputBlock,
  SessionEvent,
  SessionInfo,
  SessionState,
  TurnInfo,
} from "../protocol.gen";
import { Cursor } from "./cursor";
import { ConnectionLost, Refusal } from "./errors";
import type { Method, ParamsOf, ResultOf } from "./rpc";
import { Signal } from "./signal";
import { Transcript } from "./transcript";

/** The part of a connection this needs. */
export interface Requester {
  request<M extends Method>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
}

const GONE: ErrorData["kind"] = "no_such_session";
const OLDER_ITEMS = 200;

export class Conversation {
  /** Something to paint has changed: rows, state, title, who else watches. */
  readonly onChange = new Signal<void>();
  /** Asks of this session, as events tell of them. */
  readonly onEvent = new Signal<SessionEvent>();
  /** The draft as the daemon has it, after attaching. */
  readonly onDraft = new Signal<string>();
  readonly transcript: Transcript;

  info: SessionInfo | undefined;
  state: SessionState | undefined;
  title = "";
  turn: TurnInfo | undefined;
  clients: readonly Actor[] = [];
  private readonly cursor = new Cursor();
  private attaching: Promise<void> | undefined;
  private isAttached = false;
  private isFetchingOlder = false;
  private draft: { text: string; isSaved: boolean } | undefined;

  constructor(
    readonly sessionId: string,
    private readonly link: Requester,
    private readonly clientId: string,
  ) {
    this.transcript = new Transcript((by) => by?.clientId === this.clientId);
  }

  // --- following ---

  /** Watch the session; again after a reconnect. Rejects with `Refusal` (`no_such_session`) or `ConnectionLost`. */
  async attach(): Promise<void> {
    while (this.attaching) {
      await this.attaching.catch(() => undefined);
    }
    this.attaching = this.attachNow().finally(() => (this.attaching = undefined));
    await this.attaching;
  }

  /** The connection is gone; the next `attach` goes on where this stood. */
  lost(): void {
    this.isAttached = false;
  }

  feed(record: SessionEvent): void {
    if (record.sessionId !== this.sessionId || !this.isAttached) {
      return;
    }
    const place = this.cursor.take(record.seq);
    if (place === "gap") {
      this.attachAgain();
    } else if (place === "next") {
      this.take(record);
    }
  }

  /** The daemon has stopped telling: too much was unread. */
  attachAgain(): void {
    this.isAttached = false;
    this.attach().catch(() => undefined); // a lost connection attaches again by itself
  }

  async older(): Promise<void> {
    const cursor = this.transcript.olderCursor;
    if (cursor === undefined || this.isFetchingOlder) {
      return;
    }
    this.isFetchingOlder = true;
    try {
      const page = await this.link.request("basis/session/history", {
        sessionId: this.sessionId,
        cursor,
        direction: "before",
        limit: OLDER_ITEMS,
      });
      if (this.transcript.olderCursor === cursor) {
        this.transcript.prepend(page.items, page.beforeCursor);
        this.onChange.emit();
      }
    } finally {
      this.isFetchingOlder = false;
    }
  }

  async detach(): Promise<void> {
    this.isAttached = false;
    await this.saveDraft();
    await this.link.request("basis/session/detach", { sessionId: this.sessionId }).catch(ignoreLoss);
  }

  // --- acting ---

  get draftText(): string {
    return this.draft?.text ?? "";
  }

  get isBusy(): boolean {
    return this.turn?.state === "running" || ["working", "waiting_provider", "queued"].includes(this.state?.kind ?? "");
  }

  /** Accepted when it resolves. While a turn runs it is queued, or steers that turn. */
  async prompt(input: readonly InputBlock[], { steer = false } = {}): Promise<void> {
    await this.link.request("basis/session/prompt", {
      sessionId: this.sessionId,
      input,
      whenBusy: steer ? "steer" : "queue",
    });
    this.noteDraft("");
    await this.saveDraft();
  }

  async stop(): Promise<void> {
    await this.link.request("basis/turn/stop", { sessionId: this.sessionId });
  }

  async cancel(): Promise<void> {
    await this.link.request("basis/turn/cancel", { sessionId: this.sessionId });
  }

  async resume(): Promise<void> {
    await this.link.request("basis/turn/resume", { sessionId: this.sessionId });
  }

  async rename(title: string): Promise<void> {
    await this.link.request("basis/session/rename", { sessionId: this.sessionId, title });
  }

  /** What is typed and not sent. Saved by `saveDraft`, at the latest when the session is left. */
  noteDraft(text: string): void {
    this.draft = { text, isSaved: false };
  }

  async saveDraft(): Promise<void> {
    const draft = this.draft;
    if (draft && !draft.isSaved) {
      await this.link
        .request("basis/session/draft", { sessionId: this.sessionId, text: draft.text })
        .then(() => (draft.isSaved = true), ignoreLoss);
    }
  }

  // --- below ---

  private async attachNow(): Promise<void> {
    const afterSeq = this.transcript.needsSnapshot ? undefined : this.cursor.seen;
    const answer = await this.link.request("basis/session/attach", {
      sessionId: this.sessionId,
      ...(afterSeq === undefined ? {} : { afterSeq }),
    });
    this.cursor.attached(afterSeq, answer.seq, answer.snapshot !== undefined);
    this.isAttached = true;
    this.info = answer.info;
    this.state = answer.info.state;
    this.title = answer.info.title;
    this.turn = answer.turn;
    this.clients = answer.clients ?? [];
    if (answer.snapshot) {
      this.transcript.reset(answer);
    } else {
      this.transcript.syncAsks(answer.asks);
    }
    this.onChange.emit();
    await this.readDraft();
  }

  /** What this window typed and could not save goes first; else what is there, whoever typed it. */
  private async readDraft(): Promise<void> {
    if (this.draft && !this.draft.isSaved) {
      await this.saveDraft();
      return;
    }
    try {
      const { text } = await this.link.request("basis/session/draft", { sessionId: this.sessionId });
      if (!this.draft || this.draft.isSaved) {
        this.draft = { text, isSaved: true };
        this.onDraft.emit(text);
      }
    } catch (error) {
      ignoreLoss(error);
    }
  }

  private take({ event, ...record }: SessionEvent): void {
    switch (event.type) {
      case "run_started":
        this.turn = { turnId: event.turnId, state: "running" };
        break;
      case "run_finished":
        this.turn = undefined;
        break;
      case "info_changed":
        this.state = event.state ?? this.state;
        this.title = event.title ?? this.title;
        break;
      case "client_attached":
        // One that came back, or whose coming is told again after a daemon's death, is still one.
        this.clients = [...this.clients.filter((each) => each.clientId !== event.client.clientId), event.client];
        break;
      case "client_detached":
        this.clients = this.clients.filter((each) => each.clientId !== event.client.clientId);
        break;
      default:
        break;
    }
    this.transcript.apply(event);
    this.onEvent.emit({ ...record, event });
    this.onChange.emit();
    if (this.transcript.needsSnapshot) {
      this.attachAgain();
    }
  }
}

/** Whether a session is not there (any more). */
export function isGone(error: unknown): boolean {
  return error instanceof Refusal && error.kind === GONE;
}

function ignoreLoss(error: unknown): void {
  if (!(error instanceof ConnectionLost) && !isGone(error)) {
    throw error;
  }
}
