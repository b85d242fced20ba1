"""`basis/workspace/*`: opening directories and saying what was found in them."""

import asyncio

import msgspec

from basis_daemon.server.client import Client
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.services import Services
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.base import Empty
from basis_protocol.workspaces import (
    ContextDocument,
    Setting,
    Trust,
    WorkspaceCounts,
    WorkspaceDescription,
    WorkspaceInfo,
    WorkspaceListResult,
    WorkspaceOpenParams,
    WorkspacePathParams,
)


async def open_workspace(services: Services, client: Client, params: WorkspaceOpenParams) -> WorkspaceInfo:
    if params.additional_directories:
        raise InvalidParams("additionalDirectories: not served yet", field="additionalDirectories")
    workspace = await services.workspaces.open(params.path, params.env, sender=client.actor.client)
    if params.env is not None:
        await services.hub.carry_on_in(str(workspace.root))
    return _info(services, workspace)


async def list_workspaces(services: Services, client: Client, params: Empty) -> WorkspaceListResult:
    return WorkspaceListResult(workspaces=[await _counted(services, each) for each in services.workspaces.list()])


async def close(services: Services, client: Client, params: WorkspacePathParams) -> Empty:
    await services.workspaces.close(params.path)
    return Empty()


async def reload(services: Services, client: Client, params: WorkspacePathParams) -> WorkspaceInfo:
    return _info(services, await services.workspaces.reload(params.path))


async def describe(services: Services, client: Client, params: WorkspacePathParams) -> WorkspaceDescription:
    workspace = await services.workspaces.open(params.path)
    return await asyncio.to_thread(_describe, await _counted(services, workspace), workspace)


def _describe(info: WorkspaceInfo, workspace: Workspace) -> WorkspaceDescription:
    config = workspace.config
    settings = {
        name: setting
        for name in ("provider", "model", "effort", "base_url", "wire")
        if (setting := getattr(config, name)) is not None
    }
    return WorkspaceDescription(
        info=info,
        context=[
            ContextDocument(path=str(each.path), scope=each.scope, bytes=len(each.content.encode()))
            for each in workspace.context.documents
        ],
        config={
            name: Setting(value=str(each.value), path=str(each.path), scope=each.scope)
            for name, each in settings.items()
        },
        config_files=workspace.config_files,
        skills=[
            {
                "name": skill.name,
                "description": skill.description,
                "path": str(skill.path),
                "root": str(skill.root),
                "modelInvocable": skill.model_invocable,
            }
            for skill in workspace.skills
        ],
        tools=workspace.tools,
    )


async def _counted(services: Services, workspace: Workspace) -> WorkspaceInfo:
    """The info with all conversations counted, which reads every record: not for `open`, which everybody waits for."""
    info = _info(services, workspace)
    stored = len(await services.hub.archive.records(workspace.identifier))
    return msgspec.structs.replace(info, counts=msgspec.structs.replace(info.counts, sessions=stored))


def _info(services: Services, workspace: Workspace) -> WorkspaceInfo:
    root = str(workspace.root)
    live = [session for session in services.hub.live if session.root == root]
    clients = {client for session in live for client in session.clients}
    return WorkspaceInfo(
        path=root,
        # Nothing of a repository is executed yet that would need trust: hooks, MCP and declared tools aren't served.
        trust=Trust(state="none"),
        provider=workspace.provider or None,
        model=workspace.model or None,
        diagnostics=[],
        counts=WorkspaceCounts(sessions=len(live), live_sessions=len(live), clients=len(clients)),
        notices=workspace.notices,
    )


HANDLERS = {
    "basis/workspace/open": open_workspace,
    "basis/workspace/list": list_workspaces,
    "basis/workspace/close": close,
    "basis/workspace/reload": reload,
    "basis/workspace/describe": describe,
}
