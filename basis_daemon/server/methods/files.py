"""`basis/file/search`: paths for `@` mentions."""

from basis_daemon.server import file_search
from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_protocol.workspaces import FileSearchParams, FileSearchResult


async def search(services: Services, client: Client, params: FileSearchParams) -> FileSearchResult:
    workspace = await services.workspaces.get(params.workspace)
    return FileSearchResult(paths=await file_search.search(workspace.root, params.query, params.limit))


HANDLERS = {"basis/file/search": search}
