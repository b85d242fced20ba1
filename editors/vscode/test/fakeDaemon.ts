/** A daemon of a few lines: a real unix socket, answers from a table, events on demand. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import type { Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Decoder, encode } from "../src/core/framing";
import { helloOf } from "../src/core/handshake";
import type { SessionAttachResult, SessionInfo } from "../src/protocol.gen";

interface Message {
  id?: number;
  method: string;
  params: Record<string, unknown>;
}

type Answer = (params: Record<string, unknown>, daemon: FakeDaemon) => unknown;

export const HELLO = helloOf("vscode-test", "0");

export class FakeDaemon {
  readonly directory = mkdtempSync(join(tmpdir(), "basis-"));
  readonly path = join(this.directory, "d.sock");
  readonly seen: Message[] = [];
  private server: Server | undefined;
  private readonly sockets = new Set<Socket>();
  private waiting: { method: string; resolve(message: Message): void }[] = [];

  constructor(readonly answers: Record<string, Answer> = {}) {}

  start(): Promise<this> {
    this.server = createServer((socket) => this.serve(socket));
    return new Promise((resolve) => this.server?.listen(this.path, () => resolve(this)));
  }

  /** As a killed process: connections break. */
  async die(): Promise<void> {
    this.sockets.forEach((each) => each.destroy());
    await new Promise((resolve) => this.server?.close(resolve));
  }

  async close(): Promise<void> {
    await this.die();
    rmSync(this.directory, { recursive: true, force: true });
  }

  notify(method: string, params: unknown): void {
    this.sockets.forEach((each) => each.write(encode({ jsonrpc: "2.0", method, params })));
  }

  event(seq: number, event: object): void {
    this.notify("basis/session/event", { sessionId: "s", seq, time: "2026-01-01T00:00:00.000Z", event });
  }

  /** The next request or notification of that method. */
  next(method: string): Promise<Message> {
    return new Promise((resolve) => this.waiting.push({ method, resolve }));
  }

  params(method: string): Record<string, unknown>[] {
    return this.seen.filter((each) => each.method === method).map((each) => each.params);
  }

  private serve(socket: Socket): void {
    const decoder = new Decoder();
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("error", () => undefined);
    socket.on("data", (data) => decoder.feed(data).forEach((body) => this.received(socket, JSON.parse(body) as Message)));
  }

  private received(socket: Socket, message: Message): void {
    this.seen.push(message);
    if (message.id !== undefined) {
      const answer = this.answers[message.method] ?? DEFAULTS[message.method];
      const result = answer?.(message.params, this) as { error?: object } | undefined;
      const outcome = result?.error ? { error: result.error } : { result: result ?? {} };
      if (result !== undefined || answer === undefined) {
        socket.write(encode({ jsonrpc: "2.0", id: message.id, ...outcome }));
      }
    }
    const index = this.waiting.findIndex((each) => each.method === message.method);
    if (index >= 0) {
      this.waiting.splice(index, 1)[0]?.resolve(message);
    }
  }
}

const DEFAULTS: Record<string, Answer> = {
  initialize: () => ({
    capabilities: {
      experimental: {
        basis: {
          protocolVersion: 1,
          daemon: { version: "0", pid: 1, instanceId: "i", startedAt: "" },
          limits: { maxFrameBytes: 1, maxPromptBytes: 1 },
        },
      },
    },
  }),
  "basis/session/draft": () => ({ text: "" }),
  "basis/daemon/subscribe": () => ({ workspaces: [], sessions: [], asks: [] }),
};

export const INFO: SessionInfo = {
  sessionId: "s",
  workspace: "/w",
  title: "a title",
  state: { kind: "idle", since: "", detail: "" },
  createdAt: "",
  updatedAt: "",
  turns: 0,
  messages: 0,
  config: [],
  usage: {
    inputTokens: 0,
    outputTokens: 0,
    cacheReadTokens: 0,
    cacheCreationTokens: 0,
    reasoningTokens: 0,
    thoughtsTokens: 0,
    costNanoUsd: 0,
    pricedTokens: 0,
  },
  pendingAsks: 0,
};

export function attached(seq: number, more: Partial<SessionAttachResult> = {}): SessionAttachResult {
  return { info: INFO, seq, asks: [], ...more };
}

/** Resolves when `check` holds; it is looked at whenever something arrives. Rejects after five seconds. */
export async function until(check: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!check()) {
    if (Date.now() > deadline) {
      throw new Error(`not within five seconds: ${check.toString()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
