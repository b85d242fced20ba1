/**
 * Starting the daemon, once: callers that come while a start is under way share it. That many windows end on one daemon is
 * the daemon's own doing, by a lock; the command of the one that came second says so and that is fine.
 */

import { spawn } from "node:child_process";

import type { Environment } from "./address";
import { CannotStart } from "./errors";

const START_TIMEOUT_MS = 30_000;
const ANOTHER_RUNS = 75;
const KEPT_OUTPUT = 4096;

/** The first window's keys must not become everybody's: each workspace brings its own environment. */
const NOT_INHERITED =
  /^(?:(?:BASIS|OPENAI|ANTHROPIC|GEMINI|OPENROUTER)_(?:API_KEY|BASE_URL)|BASIS_(?:SESSION|TASK|PARENT_TASK)_ID|VSCODE_.*|ELECTRON_.*)$/;

export interface Command {
  readonly path: string;
  readonly args: readonly string[];
}

export class Launcher {
  private underWay: Promise<void> | undefined;

  constructor(
    private readonly command: () => Command,
    private readonly environment: Environment,
  ) {}

  /** Resolves when a daemon can be connected to. Rejects with `CannotStart`. */
  start(): Promise<void> {
    this.underWay ??= run(this.command(), this.environment).finally(() => (this.underWay = undefined));
    return this.underWay;
  }
}

function run(command: Command, environment: Environment): Promise<void> {
  const inherited = Object.entries(environment).filter(([name]) => !NOT_INHERITED.test(name));
  const child = spawn(command.path, command.args, {
    cwd: "/",
    detached: true,
    env: Object.fromEntries(inherited),
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output = (output + text).slice(-KEPT_OUTPUT)));
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new CannotStart(`${command.path} has not started a daemon within ${START_TIMEOUT_MS / 1000} s`)),
      START_TIMEOUT_MS,
    );
    child.on("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      reject(cannotRun(command, error));
    });
    child.on("exit", (code, signal) => {
      clearTimeout(timer);
      // The daemon may have kept the pipe; nothing more is expected from it.
      child.stderr.destroy();
      if (code === 0 || code === ANOTHER_RUNS) {
        resolve();
      } else {
        reject(new CannotStart(`${command.path} ended with ${signal ?? `status ${code}`}: ${output.trim()}`));
      }
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
