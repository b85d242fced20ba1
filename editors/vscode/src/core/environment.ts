/** The environment a window gives its workspace: commands run with it, keys are looked up in it. */

import type { Environment } from "./address";

/** The editor's own; commands that got them would behave as if they were part of it. */
const EDITORS_OWN = /^(?:VSCODE_.*|ELECTRON_.*|NODE_OPTIONS|APPLICATION_INSIGHTS_.*|CHROME_DESKTOP)$/;

export function snapshotOf(environment: Environment): Record<string, string> {
  const entries = Object.entries(environment).filter(([name, value]) => value !== undefined && !EDITORS_OWN.test(name));
  return Object.fromEntries(entries) as Record<string, string>;
}
