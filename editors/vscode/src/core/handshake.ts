/** What a window says of itself, and what it learns from the daemon's answer. */

import { hostname } from "node:os";

import type { ClientHello, ServerHello } from "../protocol.gen";
import { PROTOCOL_VERSION } from "../protocol.gen";
import { CannotStart } from "./errors";
import type { RpcConnection } from "./rpc";

/** `clientId` names this window across reconnects and reloads. */
export function helloOf(clientId: string, version: string): ClientHello {
  return {
    protocolVersions: [PROTOCOL_VERSION],
    client: { name: `vscode@${hostname()}`, version, kind: "vscode" },
    clientId,
    can: { approve: true, applyEdit: false, openDiff: true, notify: true },
  };
}

/** Throws `CannotStart` for a peer that isn't a basis daemon or speaks another version; rejects as requests do. */
export async function shakeHands(connection: RpcConnection, hello: ClientHello): Promise<ServerHello> {
  // No processId: servers may watch that process and end with it.
  const answer = await connection.call("initialize", {
    processId: null,
    rootUri: null,
    capabilities: { experimental: { basis: hello } },
  });
  const server = (answer as { capabilities?: { experimental?: { basis?: ServerHello } } } | undefined)?.capabilities
    ?.experimental?.basis;
  if (!server) {
    throw new CannotStart("what listens there is not a basis daemon", "unset BASIS_SOCKET, or point it at the daemon's");
  }
  if (server.protocolVersion !== PROTOCOL_VERSION) {
    throw new CannotStart(
      `the daemon speaks protocol ${server.protocolVersion}, this extension ${PROTOCOL_VERSION}`,
      "after an upgrade, restart the daemon: basisctl daemon stop",
    );
  }
  connection.notify("initialized", {});
  return server;
}
