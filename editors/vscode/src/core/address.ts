/**
 * Where the daemon's socket is: the same rule as in every other client (`basis_protocol/address.py`). Looks at the
 * environment it is given and at which directories can be used; creates nothing.
 */

import { createHash } from "node:crypto";
import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";

export type Environment = Readonly<Record<string, string | undefined>>;

/** The machine, as far as the rule depends on it. */
export interface Machine {
  readonly platform: string;
  readonly uid: number | undefined;
  isUsableDirectory(path: string): boolean;
}

export class NoDataDirectory extends Error {}

export const THIS_MACHINE: Machine = {
  platform: process.platform,
  uid: process.getuid?.(),
  isUsableDirectory(path) {
    try {
      accessSync(path, constants.W_OK | constants.X_OK);
      return statSync(path).isDirectory();
    } catch {
      return false;
    }
  },
};

/** `BASIS_SOCKET`; beside a data directory that was named; the user's runtime directory; else below the data directory. */
export function findSocket(environment: Environment, machine: Machine = THIS_MACHINE): string {
  const named = environment["BASIS_SOCKET"]?.trim();
  if (named) {
    return bindable(resolve(named), environment, machine);
  }
  if (!environment["BASIS_DATA_DIR"]?.trim()) {
    const runtime = runtimeDirectory(environment, machine);
    if (runtime !== undefined) {
      return bindable(join(runtime, "basis", "daemon.sock"), environment, machine);
    }
  }
  return bindable(join(findDataDirectory(environment, machine), "run", "daemon.sock"), environment, machine);
}

/** Throws `NoDataDirectory` when none can be worked out, or the one named is relative. */
export function findDataDirectory(environment: Environment, machine: Machine = THIS_MACHINE): string {
  const named = environment["BASIS_DATA_DIR"]?.trim();
  if (named) {
    if (!isAbsolute(named)) {
      throw new NoDataDirectory(`BASIS_DATA_DIR must be an absolute path, not ${JSON.stringify(named)}`);
    }
    return named;
  }
  const xdg = environment["XDG_DATA_HOME"] ?? "";
  if (isAbsolute(xdg)) {
    return join(xdg, "basis");
  }
  if (machine.platform === "win32" && environment["APPDATA"]) {
    return join(environment["APPDATA"], "basis");
  }
  const home = environment["HOME"] || environment["USERPROFILE"] || "";
  if (!isAbsolute(home)) {
    throw new NoDataDirectory("there is no home directory: set BASIS_DATA_DIR to an absolute path");
  }
  return machine.platform === "darwin"
    ? join(home, "Library", "Application Support", "basis")
    : join(home, ".local", "share", "basis");
}

/** What the daemon logs to. */
export function findLog(environment: Environment, machine: Machine = THIS_MACHINE): string {
  return join(findDataDirectory(environment, machine), "log", "daemon.log");
}

function runtimeDirectory(environment: Environment, machine: Machine): string | undefined {
  if (machine.platform === "win32" || machine.platform === "darwin") {
    return undefined;
  }
  const candidates = [environment["XDG_RUNTIME_DIR"] ?? "", `/run/user/${machine.uid ?? ""}`];
  return candidates.find((each) => isAbsolute(each) && machine.isUsableDirectory(each));
}

/** A path too long for a unix socket is replaced by a short one named by its digest. */
function bindable(path: string, environment: Environment, machine: Machine): string {
  const longest = machine.platform === "darwin" ? 103 : 107;
  if (Buffer.byteLength(path) <= longest) {
    return path;
  }
  const name = `${createHash("sha256").update(path).digest("hex").slice(0, 16)}.sock`;
  const runtime = runtimeDirectory(environment, machine);
  if (runtime !== undefined) {
    const short = join(runtime, "basis", name);
    if (Buffer.byteLength(short) <= longest) {
      return short;
    }
  }
  // Not os.tmpdir(): TMPDIR differs between logins of one person, and the path must not.
  return join("/tmp", `basis-${machine.uid ?? "user"}`, name);
}
