/**
 * Starting the daemon, once: callers that come while a start is under way share it. That many windows end on one daemon is
 * the daemon's own doing, by a lock; the command of the one that came second says so and that is fine.
 */

import { spawn } from "node:child_process";
import { closeSync, fstatSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { dirname } from "node:path";

import type { Environment } from "./address";
import { CannotStart } from "./errors";

const START_TIMEOUT_MS = 30_000;
const ANOTHER_RUNS = 75;
const KEPT_OUTPUT = 1000;
const LOOK_EVERY_MS = 20;

/** The first window's keys must not become everybody's: each workspace brings its own environment. */
const NOT_INHERITED =
  /^(?:(?:BASIS|OPENAI|ANTHROPIC|GEMINI|OPENROUTER)_(?:API_KEY|BASE_URL)|BASIS_(?:SESSION|TASK|PARENT_TASK)_ID|VSCODE_.*|ELECTRON_.*)$/;

export interface Command {
  readonly path: string;
  readonly args: readonly string[];
}

/** Where the new daemon will be: its socket and the file its last words go to. */
export interface Places {
  readonly socket: string;
  readonly log: string;
}

export class Launcher {
  private underWay: Promise<void> | undefined;

  constructor(
    private readonly command: () => Command,
    private readonly environment: Environment,
    private readonly places: () => Places,
    private readonly timeoutMs = START_TIMEOUT_MS,
  ) {}

  /** Resolves when a daemon can be connected to. Rejects with `CannotStart`. */
  start(): Promise<void> {
    this.underWay ??= this.run(this.command(), this.places()).finally(() => (this.underWay = undefined));
    return this.underWay;
  }

  private async run(command: Command, places: Places): Promise<void> {
    const deadline = Date.now() + this.timeoutMs;
    const launched = new Launched(command, this.environment, places.log);
    while (!(await answers(places.socket))) {
      launched.check();
      if (Date.now() > deadline) {
        throw new CannotStart(`${command.path} was run but nothing answers at ${places.socket}`, `look at ${places.log}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }
}

/** The process that becomes the daemon, or ends because there is one. It outlives this window. */
class Launched {
  private failure: CannotStart | undefined;
  private readonly mark: number;

  constructor(
    command: Command,
    environment: Environment,
    private readonly logPath: string,
  ) {
    mkdirSync(dirname(logPath), { recursive: true, mode: 0o700 });
    const log = openSync(logPath, "a", 0o600);
    this.mark = fstatSync(log).size;
    const inherited = Object.entries(environment).filter(([name]) => !NOT_INHERITED.test(name));
    const child = spawn(command.path, command.args, {
      cwd: "/",
      detached: true,
      env: Object.fromEntries(inherited),
      // Its output goes to a file: a pipe would break with this window.
      stdio: ["ignore", log, log],
    });
    closeSync(log);
    child.unref();
    child.on("error", (error: NodeJS.ErrnoException) => (this.failure = cannotRun(command, error)));
    child.on("exit", (code, signal) => {
      if (code !== 0 && code !== ANOTHER_RUNS) {
        this.failure = new CannotStart(`${command.path} ended with ${signal ?? `status ${code}`}: ${this.lastWords()}`);
      }
    });
  }

  /** Throws `CannotStart` once it is known that there will be no daemon. */
  check(): void {
    if (this.failure) {
      throw this.failure;
    }
  }

  private lastWords(): string {
    return readFileSync(this.logPath).subarray(this.mark).toString("utf8").trim().slice(-KEPT_OUTPUT);
  }
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("error", () => resolve(false));
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
  });
}

function cannotRun(command: Command, error: NodeJS.ErrnoException): CannotStart {
  return error.code === "ENOENT"
    ? new CannotStart(
        `the command ${command.path} was not found`,
        "install it with `pip install basis-daemon`, or name it in the setting basis.daemon.path",
      )
    : new CannotStart(`${command.path} can't be run: ${error.message}`);
}
