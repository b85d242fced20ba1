/**
 * The one connection of a window, kept up. Owns dialling, starting a daemon where that is allowed, and coming back with
 * growing pauses after a loss. What is said over the connection is not its business.
 */

import { lstatSync } from "node:fs";
import { connect } from "node:net";
import type { Socket } from "node:net";

import type { ClientHello, ServerHello } from "../protocol.gen";
import { CannotStart, ConnectionLost, sentence } from "./errors";
import { shakeHands } from "./handshake";
import type { Method, Notification, ParamsOf, ResultOf } from "./rpc";
import { RpcConnection } from "./rpc";
import { Signal } from "./signal";

export type LinkState =
  | { readonly phase: "disconnected"; readonly why: string }
  | { readonly phase: "connecting"; readonly why: string }
  | { readonly phase: "connected"; readonly server: ServerHello };

export interface LinkOptions {
  readonly socket: () => string;
  readonly hello: ClientHello;
  /** Starts a daemon; absent where none may be started. */
  readonly start: () => (() => Promise<void>) | undefined;
  readonly trace?: (direction: "→" | "←", message: string) => void;
  readonly pausesMs?: { readonly first: number; readonly longest: number };
}

const PAUSES_MS = { first: 50, longest: 2000 };
const DIAL_TIMEOUT_MS = 2000;
const HANDSHAKE_TIMEOUT_MS = 20_000;

export class Link {
  readonly onState = new Signal<LinkState>();
  /** After every handshake, before any notification of that connection. */
  readonly onConnected = new Signal<ServerHello>();
  readonly onNotification = new Signal<Notification>();

  private current: LinkState = { phase: "disconnected", why: "not connected yet" };
  private connection: RpcConnection | undefined;
  private attempt: Promise<void> | undefined;
  private retry: NodeJS.Timeout | undefined;
  private pauseMs = 0;
  private isDisposed = false;
  private isWanted = false;
  private startProblem: string | undefined;

  constructor(private readonly options: LinkOptions) {}

  get state(): LinkState {
    return this.current;
  }

  /** Connect now; start a daemon if none answers and `start` is set. Never rejects: see `state`. */
  async connect({ start }: { start: boolean }): Promise<void> {
    this.isWanted ||= start;
    // A caller that may start one must not be served by an attempt that may not.
    while (this.attempt) {
      await this.attempt;
    }
    if (this.connection?.isOpen || this.isDisposed) {
      return;
    }
    this.attempt = this.tryOnce(start).finally(() => (this.attempt = undefined));
    await this.attempt;
  }

  /** Rejects with `ConnectionLost` while there is no connection. */
  request<M extends Method>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    return this.connection
      ? this.connection.request(method, params)
      : Promise.reject(new ConnectionLost("not connected to the daemon"));
  }

  dispose(): void {
    this.isDisposed = true;
    clearTimeout(this.retry);
    this.connection?.close("this window is closing");
  }

  private async tryOnce(mayStart: boolean): Promise<void> {
    clearTimeout(this.retry);
    this.become({ phase: "connecting", why: "connecting to the daemon" });
    try {
      const server = await this.open(mayStart ? this.options.start() : undefined);
      this.pauseMs = 0;
      this.isWanted = true;
      this.startProblem = undefined;
      this.become({ phase: "connected", server });
      this.onConnected.emit(server);
    } catch (error) {
      this.connection = undefined;
      // Why a daemon could not be started says more than that, later on, there is still none.
      if (mayStart) {
        this.startProblem = sentence(error);
      }
      this.become({ phase: "disconnected", why: this.startProblem ?? sentence(error) });
      this.retryLater();
    }
  }

  private async open(start: (() => Promise<void>) | undefined): Promise<ServerHello> {
    let socket = await dial(this.options.socket()).catch((error: unknown) => {
      if (start === undefined) {
        throw error;
      }
    });
    if (!socket && start) {
      this.become({ phase: "connecting", why: "starting the daemon" });
      await start();
      socket = await dial(this.options.socket());
    }
    return this.introduce(socket as Socket);
  }

  private async introduce(socket: Socket): Promise<ServerHello> {
    const connection: RpcConnection = new RpcConnection(socket, {
      onNotification: (each) => this.onNotification.emit(each),
      onClosed: (why) => this.lost(connection, why),
      ...(this.options.trace ? { onTraffic: this.options.trace } : {}),
    });
    const timer = setTimeout(() => connection.close("the daemon does not answer"), HANDSHAKE_TIMEOUT_MS);
    try {
      const server = await shakeHands(connection, this.options.hello);
      this.connection = connection;
      return server;
    } catch (error) {
      connection.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  private lost(connection: RpcConnection, why: string): void {
    if (this.connection !== connection) {
      return;
    }
    this.connection = undefined;
    this.become({ phase: "disconnected", why: `lost the daemon: ${why}` });
    this.retryLater();
  }

  private retryLater(): void {
    if (this.isDisposed) {
      return;
    }
    const { first, longest } = this.options.pausesMs ?? PAUSES_MS;
    this.pauseMs = Math.min(longest, this.pauseMs ? this.pauseMs * 2 : first);
    clearTimeout(this.retry);
    // A daemon that was killed leaves its socket behind and is started again; one that was stopped on purpose is not.
    const pause = this.pauseMs * (0.75 + Math.random() / 2);
    this.retry = setTimeout(() => void this.connect({ start: this.hasDied() }), pause);
    this.retry.unref?.();
  }

  private hasDied(): boolean {
    if (!this.isWanted) {
      return false; // a window in which nobody has asked for anything starts nothing
    }
    try {
      lstatSync(this.options.socket());
      return true;
    } catch {
      return false;
    }
  }

  private become(state: LinkState): void {
    this.current = state;
    this.onState.emit(state);
  }
}

/** Rejects with `CannotStart` when nobody listens. */
function dial(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.setTimeout(DIAL_TIMEOUT_MS, () => socket.destroy(new Error("it does not take connections")));
    socket.once("error", (error) => {
      reject(new CannotStart(`nothing answers at ${path}: ${error.message}`, "start it: basisctl daemon start"));
    });
    socket.once("connect", () => {
      socket.setTimeout(0);
      socket.removeAllListeners("error");
      resolve(socket);
    });
  });
}
