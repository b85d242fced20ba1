/** JSON-RPC 2.0 over one byte stream. Owns ids and who waits for which answer; knows no method. */

import type { Duplex } from "node:stream";

import type { ErrorData, Notifications, Requests } from "../protocol.gen";
import { ErrorCode } from "../protocol.gen";
import { ConnectionLost, Refusal } from "./errors";
import { Decoder, encode } from "./framing";

export type Method = keyof Requests;
export type ParamsOf<M extends Method> = Requests[M]["params"];
export type ResultOf<M extends Method> = Requests[M]["result"];
export type Notification = {
  [M in keyof Notifications]: { readonly method: M; readonly params: Notifications[M]["params"] };
}[keyof Notifications];

export interface RpcEvents {
  /** In the order of the wire. Methods this client doesn't know come too: ignore them. */
  onNotification(notification: Notification): void;
  /** Once, when the connection is over. */
  onClosed(why: string): void;
  /** Everything that is said, for a trace. */
  onTraffic?(direction: "→" | "←", message: string): void;
}

interface Waiting {
  resolve(result: never): void;
  reject(error: Error): void;
}

interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { code: number; message: string; data?: Partial<ErrorData> };
}

export class RpcConnection {
  private readonly waiting = new Map<number, Waiting>();
  private readonly decoder = new Decoder();
  private readonly inbox: Message[] = [];
  private isDelivering = false;
  private nextId = 1;
  private isClosed = false;
  private ended: string | undefined;

  constructor(
    private readonly stream: Duplex,
    private readonly events: RpcEvents,
  ) {
    stream.on("data", (data: Buffer) => this.receive(data));
    stream.on("error", (error) => this.end(error.message));
    stream.on("close", () => this.end("the daemon closed the connection"));
  }

  get isOpen(): boolean {
    return !this.isClosed;
  }

  /** Rejects with `Refusal`, or `ConnectionLost` when the connection ends first. */
  request<M extends Method>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    return this.call(method, params) as Promise<ResultOf<M>>;
  }

  /** `request` for methods of LSP itself. */
  call(method: string, params: unknown): Promise<unknown> {
    if (this.isClosed) {
      return Promise.reject(new ConnectionLost("not connected to the daemon"));
    }
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ jsonrpc: "2.0", id, method, params });
    });
  }

  notify(method: string, params: unknown): void {
    if (!this.isClosed) {
      this.send({ jsonrpc: "2.0", method, params });
    }
  }

  /** Ends the connection. Every request still waiting is rejected. */
  close(why = "closed"): void {
    if (this.isClosed) {
      return;
    }
    this.isClosed = true;
    this.stream.destroy();
    for (const each of this.waiting.values()) {
      each.reject(new ConnectionLost(`the connection to the daemon was lost: ${why}`));
    }
    this.waiting.clear();
    this.events.onClosed(why);
  }

  private receive(data: Buffer): void {
    try {
      for (const body of this.decoder.feed(data)) {
        this.events.onTraffic?.("←", body);
        this.inbox.push(JSON.parse(body) as Message);
      }
    } catch (error) {
      this.end(error instanceof Error ? error.message : String(error));
    }
    void this.deliver();
  }

  /** Nothing more will come; what came already is still delivered. */
  private end(why: string): void {
    this.ended ??= why;
    void this.deliver();
  }

  /**
   * Hands messages on in their order. After an answer whoever waited for it gets to act before the next message is looked at:
   * the events that follow an attach belong to an attached session.
   */
  private async deliver(): Promise<void> {
    if (this.isDelivering) {
      return;
    }
    this.isDelivering = true;
    for (let message = this.inbox.shift(); message && !this.isClosed; message = this.inbox.shift()) {
      this.dispatch(message);
      if (message.method === undefined) {
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    this.isDelivering = false;
    if (this.ended !== undefined) {
      this.close(this.ended);
    }
  }

  private dispatch(message: Message): void {
    if (message.method !== undefined) {
      if (message.id === undefined || message.id === null) {
        this.events.onNotification({ method: message.method, params: message.params } as Notification);
      } else {
        const error = { code: ErrorCode.METHOD_NOT_FOUND, message: `${message.method} is not answered here` };
        this.send({ jsonrpc: "2.0", id: message.id, error });
      }
      return;
    }
    const waiting = this.waiting.get(message.id as number);
    if (waiting === undefined) {
      return;
    }
    this.waiting.delete(message.id as number);
    if (message.error) {
      waiting.reject(new Refusal(message.error.code, message.error.message, message.error.data));
    } else {
      waiting.resolve(message.result as never);
    }
  }

  private send(message: object): void {
    this.events.onTraffic?.("→", JSON.stringify(message));
    this.stream.write(encode(message));
  }
}
