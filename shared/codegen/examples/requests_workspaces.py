"""Requests about repositories and what is found in them: method → (params, result)."""

from basis_protocol import events, workspaces
from basis_protocol.base import Empty, WireModel
from codegen.examples import common

_PATH = workspaces.WorkspacePathParams(path=common.WORKSPACE)

EXAMPLES: dict[str, tuple[WireModel, WireModel]] = {
    "basis/workspace/open": (
        workspaces.WorkspaceOpenParams(
            path=common.WORKSPACE, env={"PATH": "/usr/bin:/bin"}, additional_directories=["/home/ada/notes"]
        ),
        common.WORKSPACE_INFO,
    ),
    "basis/workspace/list": (Empty(), workspaces.WorkspaceListResult(workspaces=[common.WORKSPACE_INFO])),
    "basis/workspace/close": (_PATH, Empty()),
    "basis/workspace/reload": (_PATH, common.WORKSPACE_INFO),
    "basis/workspace/describe": (
        _PATH,
        workspaces.WorkspaceDescription(
            info=common.WORKSPACE_INFO,
            context=[workspaces.ContextDocument(path=f"{common.WORKSPACE}/AGENTS.md", scope="workspace", bytes=812)],
            config={
                "model": workspaces.Setting(
                    value="gpt-5.1-codex", path=f"{common.WORKSPACE}/.basis/config.json", scope="workspace"
                )
            },
            config_files=[events.ContextFile(path=f"{common.WORKSPACE}/.basis/config.json", scope="workspace")],
            templates=[events.TemplateSummary(name="review", description="Review a change", argument_hint="[branch]")],
            mcp_servers=["tracker"],
            tools=["edit", "glob", "grep", "ls", "read", "spawn", "write"],
        ),
    ),
    "basis/workspace/fingerprint": (_PATH, workspaces.FingerprintResult(hex="9f86d081884c7d65", files=318)),
    "basis/workspace/trust": (
        workspaces.TrustParams(path=common.WORKSPACE, digests=["blake2b:5d41402abc4b2a76"]),
        workspaces.Trust(state="trusted"),
    ),
    "basis/mcp/list": (
        workspaces.McpListParams(workspace=common.WORKSPACE),
        workspaces.McpListResult(
            servers=[
                workspaces.McpServerInfo(
                    name="tracker", workspace=common.WORKSPACE, state="failed", error="the command was not found"
                )
            ]
        ),
    ),
    "basis/mcp/restart": (workspaces.McpRestartParams(workspace=common.WORKSPACE, name="tracker"), Empty()),
    "basis/memory/list": (
        workspaces.MemoryParams(workspace=common.WORKSPACE),
        workspaces.MemoryListResult(
            memories=[
                workspaces.MemoryEntry(
                    name="pump-tests",
                    description="How the pump is tested",
                    type="project",
                    path=f"{common.WORKSPACE}/.basis/memory/pump-tests.md",
                    scope="workspace",
                )
            ]
        ),
    ),
    "basis/memory/read": (
        workspaces.MemoryParams(workspace=common.WORKSPACE, name="pump-tests"),
        workspaces.MemoryReadResult(text="The pump's clock is a parameter.\n"),
    ),
    "basis/memory/forget": (workspaces.MemoryParams(workspace=common.WORKSPACE, name="pump-tests"), Empty()),
    "basis/rule/list": (
        workspaces.RuleListParams(session_id=common.SESSION),
        workspaces.RuleListResult(rules=[common.RULE]),
    ),
    "basis/rule/remove": (workspaces.RuleRemoveParams(rule=common.RULE, session_id=common.SESSION), Empty()),
    "basis/rule/explain": (
        workspaces.RuleExplainParams(
            tool="spawn", input={"prompt": "!pytest -q"}, workspace=common.WORKSPACE, session_id=common.SESSION
        ),
        workspaces.RuleExplainResult(outcome="allow", rule=common.RULE),
    ),
    "basis/template/list": (
        workspaces.TemplateListParams(workspace=common.WORKSPACE),
        workspaces.TemplateListResult(templates=[events.TemplateSummary(name="review", description="Review a change")]),
    ),
    "basis/file/search": (
        workspaces.FileSearchParams(workspace=common.WORKSPACE, query="pump", limit=2),
        workspaces.FileSearchResult(paths=["engine/pump.py", "tests/test_pump.py"]),
    ),
}
