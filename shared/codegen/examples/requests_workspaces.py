"""Requests about repositories and what is found in them: method → (params, result)."""

from basis_protocol import events, workspaces
from basis_protocol.base import Empty, WireModel
from codegen.examples import story

_PATH = workspaces.WorkspacePathParams(path=story.WORKSPACE)

EXAMPLES: dict[str, tuple[WireModel, WireModel]] = {
    "basis/workspace/open": (
        workspaces.WorkspaceOpenParams(
            path=story.WORKSPACE, env={"PATH": "/usr/bin:/bin"}, additional_directories=["/home/ada/notes"]
        ),
        story.WORKSPACE_INFO,
    ),
    "basis/workspace/list": (Empty(), workspaces.WorkspaceListResult(workspaces=[story.WORKSPACE_INFO])),
    "basis/workspace/close": (_PATH, Empty()),
    "basis/workspace/reload": (_PATH, story.WORKSPACE_INFO),
    "basis/workspace/describe": (
        _PATH,
        workspaces.WorkspaceDescription(
            info=story.WORKSPACE_INFO,
            context=[workspaces.ContextDocument(path=f"{story.WORKSPACE}/AGENTS.md", scope="workspace", bytes=812)],
            config={
                "model": workspaces.Setting(
                    value="gpt-5.1-codex", path=f"{story.WORKSPACE}/.basis/config.json", scope="workspace"
                )
            },
            config_files=[events.ContextFile(path=f"{story.WORKSPACE}/.basis/config.json", scope="workspace")],
            templates=[events.TemplateSummary(name="review", description="Review a change", argument_hint="[branch]")],
            mcp_servers=["tracker"],
            tools=["edit", "glob", "grep", "ls", "read", "spawn", "write"],
        ),
    ),
    "basis/workspace/fingerprint": (_PATH, workspaces.FingerprintResult(hex="9f86d081884c7d65", files=318)),
    "basis/workspace/trust": (
        workspaces.TrustParams(path=story.WORKSPACE, digests=["blake2b:5d41402abc4b2a76"]),
        workspaces.Trust(state="trusted"),
    ),
    "basis/mcp/list": (
        workspaces.McpListParams(workspace=story.WORKSPACE),
        workspaces.McpListResult(
            servers=[
                workspaces.McpServerInfo(
                    name="tracker", workspace=story.WORKSPACE, state="failed", error="the command was not found"
                )
            ]
        ),
    ),
    "basis/mcp/restart": (workspaces.McpRestartParams(workspace=story.WORKSPACE, name="tracker"), Empty()),
    "basis/memory/list": (
        workspaces.MemoryParams(workspace=story.WORKSPACE),
        workspaces.MemoryListResult(
            memories=[
                workspaces.MemoryEntry(
                    name="pump-tests",
                    description="How the pump is tested",
                    type="project",
                    path=f"{story.WORKSPACE}/.basis/memory/pump-tests.md",
                    scope="workspace",
                )
            ]
        ),
    ),
    "basis/memory/read": (
        workspaces.MemoryParams(workspace=story.WORKSPACE, name="pump-tests"),
        workspaces.MemoryReadResult(text="The pump's clock is a parameter.\n"),
    ),
    "basis/memory/forget": (workspaces.MemoryParams(workspace=story.WORKSPACE, name="pump-tests"), Empty()),
    "basis/rule/list": (
        workspaces.RuleListParams(session_id=story.SESSION),
        workspaces.RuleListResult(rules=[story.RULE]),
    ),
    "basis/rule/remove": (workspaces.RuleRemoveParams(rule=story.RULE, session_id=story.SESSION), Empty()),
    "basis/rule/explain": (
        workspaces.RuleExplainParams(
            tool="spawn", input={"input": "!pytest -q"}, workspace=story.WORKSPACE, session_id=story.SESSION
        ),
        workspaces.RuleExplainResult(
            outcome="allow",
            decided_by="rule",
            why="allowed by a remembered answer in scope `project`",
            rule=story.RULE,
            file="/home/ada/.local/share/basis/store/rules.json",
            runners_up=[
                workspaces.RuleRunnerUp(
                    rule=workspaces.Rule(tool_name="spawn", allow=False, scope="global", reason="ask first"),
                    why="`project` comes before `global`",
                )
            ],
        ),
    ),
    "basis/template/list": (
        workspaces.TemplateListParams(workspace=story.WORKSPACE),
        workspaces.TemplateListResult(templates=[events.TemplateSummary(name="review", description="Review a change")]),
    ),
    "basis/file/search": (
        workspaces.FileSearchParams(workspace=story.WORKSPACE, query="pump", limit=2),
        workspaces.FileSearchResult(paths=["engine/pump.py", "tests/test_pump.py"]),
    ),
}
