"""Values that several examples share, so that the golden messages tell one story: a slow test is looked into."""

from basis_protocol.asks import Actor, Ask, AskOption
from basis_protocol.content import Classification, CommandPreview, FileDiff, Position, Range
from basis_protocol.events import SessionState, Usage
from basis_protocol.lifecycle import SessionSummary, WorkspaceSummary
from basis_protocol.sessions import ConfigChoice, ConfigOption, SessionInfo
from basis_protocol.workspaces import Rule, Trust, WorkspaceCounts, WorkspaceDiagnostic, WorkspaceInfo

WORKSPACE = "/home/ada/engine"
SESSION = "01jd8f2k9q"
TURN = "t-0002"
MESSAGE = "m-0007"
CALL = "call_3"
RESULT = f"{SESSION}/r-0011"
NOW = "2026-01-31T12:00:00.000Z"
LATER = "2026-01-31T12:00:04.250Z"

NVIM = Actor(client="nvim", kind="nvim", client_id="nvim-4711")
CLI = Actor(client="basisctl", kind="cli", client_id="cli-4712")

RANGE = Range(start=Position(line=11, character=4), end=Position(line=12))

USAGE = Usage(input_tokens=1830, output_tokens=212, cache_read_tokens=1024)

DIFF = FileDiff(
    path="engine/pump.py",
    patch="--- a/engine/pump.py\n+++ b/engine/pump.py\n@@ -1 +1 @@\n-DELAY_S = 2\n+DELAY_S = 0.2\n",
    old="DELAY_S = 2\n",
    new="DELAY_S = 0.2\n",
)

OPTIONS = [
    AskOption(option_id="allow_once", label="Allow once", decision="allow", scope="once"),
    AskOption(option_id="allow_session", label="Allow in this session", decision="allow", scope="session"),
    AskOption(option_id="deny", label="Deny", decision="deny", scope="once"),
]

ASK = Ask(
    ask_id="ask-0003",
    session_id=SESSION,
    workspace=WORKSPACE,
    kind="tool",
    title="Run a command",
    description="pytest -q tests/test_pump.py",
    tool_call_id=CALL,
    tool_name="spawn",
    side_effect="process",
    preview=CommandPreview(
        command="pytest -q tests/test_pump.py",
        cwd=WORKSPACE,
        classification=Classification(intent="unknown", warnings=["runs code of this repository"]),
    ),
    options=OPTIONS,
    created_at=NOW,
)

STATE = SessionState(kind="waiting_person", since=NOW, detail="asks to run a command", ask_id=ASK.ask_id)

MODE = ConfigOption(
    option="mode",
    category="mode",
    label="Approval",
    value="prompt",
    choices=[ConfigChoice(value="prompt", label="Ask first"), ConfigChoice(value="never", label="Never allow")],
)

INFO = SessionInfo(
    session_id=SESSION,
    workspace=WORKSPACE,
    title="Why is the pump test slow?",
    state=STATE,
    created_at=NOW,
    updated_at=LATER,
    turns=2,
    messages=7,
    provider="openai",
    model="gpt-5.1-codex",
    config=[MODE],
    usage=USAGE,
    pending_asks=1,
)

WORKSPACE_INFO = WorkspaceInfo(
    path=WORKSPACE,
    trust=Trust(state="pending", pending=[".basis/hooks/check.sh"]),
    provider="openai",
    model="gpt-5.1-codex",
    diagnostics=[
        WorkspaceDiagnostic(
            file=f"{WORKSPACE}/.basis/config.json", line=3, column=5, kind="config_invalid", message="not a number"
        )
    ],
    counts=WorkspaceCounts(sessions=4, live_sessions=1, clients=2),
)

WORKSPACE_SUMMARY = WorkspaceSummary(path=WORKSPACE, provider="openai", model="gpt-5.1-codex", clients=2)

SESSION_SUMMARY = SessionSummary(
    session_id=SESSION,
    workspace=WORKSPACE,
    title=INFO.title,
    state="waiting_person",
    updated_at=LATER,
    pending_asks=1,
)

RULE = Rule(
    tool_name="spawn",
    pattern='{"body":"pytest *","cwd":"*","mode":"command","target":"local"}',
    allow=True,
    scope="project",
)
