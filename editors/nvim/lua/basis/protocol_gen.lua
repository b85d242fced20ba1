-- Generated from basis_protocol; do not edit. `make gen` writes it again.
--
-- A newer daemon may send fields, words and event types that are not listed here: ignore them.

--- RFC 3339, UTC, milliseconds: 2026-01-31T12:00:00.000Z
---@alias basis.Timestamp string

--- absolute path in the daemon's file system
---@alias basis.AbsolutePath string

--- the persisted agent id; stable across resume, restart and reboot
---@alias basis.SessionId string

--- one prompt and all that follows from it, unique within its session
---@alias basis.TurnId string

--- one question to a person, unique in the daemon's data directory
---@alias basis.AskId string

--- one tool call, unique within its session
---@alias basis.ToolCallId string

--- one assistant message, shared by its deltas and its final item
---@alias basis.MessageId string

--- one transcript entry
---@alias basis.EntryId string

--- `<sessionId>/<id>` of one tool result kept in full, for basis/tool/result
---@alias basis.ResultId string

--- number of an event in its session: starts at 1, has no holes
---@alias basis.Seq integer

--- One part of a prompt. A client that only types text sends a list with one `text` block.
---@alias basis.InputBlock basis.TextBlock|basis.ImageBlock|basis.ResourceBlock|basis.MentionBlock|basis.SelectionBlock|basis.DiagnosticsBlock|basis.TemplateBlock

--- What a person is shown before they answer: exactly what will run.
---@alias basis.Preview basis.DiffPreview|basis.CommandPreview|basis.CallPreview

---@alias basis.Decision "allow"|"deny"

---@alias basis.Scope "once"|"session"|"project"|"global"

---@alias basis.SideEffect "none"|"local_state"|"process"|"external"|string

---@alias basis.Mutability "read_only"|"mutating"|"unknown"|string

---@alias basis.StoppedBy "deadline"|"tool_budget"|"token_budget"|"stop_requested"|string

---@alias basis.TurnStatus "ok"|"error"|"cancelled"|"interrupted"|string

--- Every event of version 1.
---@alias basis.AnyEvent basis.RunStarted|basis.UserMessage|basis.AssistantDelta|basis.AssistantReasoningDelta|basis.AssistantMessage|basis.ToolQueued|basis.ToolStarted|basis.ToolProgress|basis.ToolCompleted|basis.PermissionRequested|basis.PermissionResolved|basis.TaskUpdated|basis.CompactionStarted|basis.CompactionCompleted|basis.RequestToolResultsElided|basis.MemoryUpdated|basis.UsageReported|basis.Notice|basis.Retry|basis.ErrorEvent|basis.Branched|basis.RunFinished|basis.TurnQueued|basis.AskOpened|basis.AskClosed|basis.ConfigChanged|basis.InfoChanged|basis.ClientAttached|basis.ClientDetached|basis.LeaseConflict

---@alias basis.ClientKind "vscode"|"nvim"|"cli"|"acp"|"lsp"|string

--- A message with no fields: `{}`.
---@class basis.Empty

--- Zero-based line and UTF-16 character, as in LSP.
---@class basis.Position
---@field line integer at least 0
---@field character? integer at least 0 (default 0)

---@class basis.Range
---@field start basis.Position
---@field end basis.Position

---@class basis.TextBlock
---@field type "text"
---@field text string

--- An image: base64 bytes with their media type, or a URI. Exactly one of `data` and `uri`.
---@class basis.ImageBlock
---@field type "image"
---@field mimeType? string
---@field data? string base64
---@field uri? string

--- A file, a range of one, or the unsaved text of a buffer (`text`).
---@class basis.ResourceBlock
---@field type "resource"
---@field uri string
---@field text? string
---@field range? basis.Range
---@field mimeType? string

--- A path only; the agent reads it if it wants to.
---@class basis.MentionBlock
---@field type "mention"
---@field path string

---@class basis.SelectionBlock
---@field type "selection"
---@field uri string
---@field range basis.Range
---@field text string

---@class basis.Diagnostic
---@field range basis.Range
---@field message string
---@field severity? "error"|"warning"|"information"|"hint"|string
---@field source? string
---@field code? string

---@class basis.DiagnosticsBlock
---@field type "diagnostics"
---@field uri string
---@field diagnostics basis.Diagnostic[]

---@class basis.TemplateBlock
---@field type "template"
---@field name string
---@field arguments? string (default "")

--- A proposed or finished change of one file. `patch` is a unified diff; `old`/`new` are whole texts when small.
---@class basis.FileDiff
---@field path string
---@field patch string
---@field old? string
---@field new? string
---@field created? boolean (default false)
---@field truncated? boolean patch was cut; the change itself was not (default false)

---@class basis.DiffPreview
---@field type "diff"
---@field files basis.FileDiff[]

--- What a command seems to do. A heuristic for the person who decides, never a boundary.
---@class basis.Classification
---@field intent "read_only"|"write"|"destructive"|"network"|"process_management"|"package_management"|"system_admin"|"unknown"|string
---@field warnings? string[] (default {})

---@class basis.CommandPreview
---@field type "command"
---@field command string
---@field cwd basis.AbsolutePath
---@field target? string (default "local")
---@field classification? basis.Classification

---@class basis.CallPreview
---@field type "call"
---@field input any

--- One way to answer, ready to be a button. Sending its decision and scope back is an answer.
---@class basis.AskOption
---@field optionId string
---@field label string
---@field decision basis.Decision
---@field scope basis.Scope

--- A question that waits. It outlives the client that saw it first, a restart and a reboot.
---@class basis.Ask
---@field askId basis.AskId
---@field sessionId basis.SessionId
---@field workspace basis.AbsolutePath
---@field kind "tool"|"question"|"elicitation"|"sign_in"|"conflict"|string
---@field title string
---@field description string
---@field toolCallId? basis.ToolCallId
---@field toolName? string
---@field sideEffect? basis.SideEffect
---@field preview basis.Preview
---@field options basis.AskOption[]
---@field createdAt basis.Timestamp
---@field expiresAt? basis.Timestamp

--- Who did something: a client by name, or the daemon itself.
---@class basis.Actor
---@field client string
---@field kind? "vscode"|"nvim"|"cli"|"acp"|"lsp"|"daemon"|"sdk"|string (default "daemon")
---@field clientId? string

---@class basis.AskListParams
---@field workspace? basis.AbsolutePath
---@field sessionId? basis.SessionId

---@class basis.AskListResult
---@field asks basis.Ask[]

--- The first answer wins. `reason` on a denial is what the model reads. `pattern` narrows what is remembered.
---@class basis.AskAnswerParams
---@field askId basis.AskId
---@field decision basis.Decision
---@field scope? basis.Scope (default "once")
---@field reason? string
---@field pattern? string

---@class basis.AskAnswerResult
---@field outcome "allowed"|"denied"|string

--- `error.data.details` of `ask_decided`: who answered first, what, and when.
---@class basis.AskDecided
---@field by basis.Actor
---@field decision basis.Decision
---@field scope string once, session, project or global
---@field at basis.Timestamp
---@field reason? string

--- A discovered file and where it stands: `global`, `ancestor:N` or `workspace`.
---@class basis.ContextFile
---@field path basis.AbsolutePath
---@field scope string

---@class basis.SkillSummary
---@field name string
---@field description string

---@class basis.TemplateSummary
---@field name string
---@field description string
---@field argumentHint? string

--- Tokens as providers reported them. Cache counts are inside `input_tokens`; reasoning is inside `output_tokens`,
--- thoughts are outside it.
---
--- `cost_nano_usd` is what those of them cost whose price was known when they were reported, `priced_tokens`: all of
--- them when that equals input and output together, none when it is zero.
---@class basis.Usage
---@field inputTokens? integer (default 0)
---@field outputTokens? integer (default 0)
---@field cacheReadTokens? integer (default 0)
---@field cacheCreationTokens? integer (default 0)
---@field reasoningTokens? integer (default 0)
---@field thoughtsTokens? integer (default 0)
---@field costNanoUsd? integer billionths of a US dollar (default 0)
---@field pricedTokens? integer input and output tokens that are in the cost (default 0)

--- First event of a turn.
---@class basis.RunStarted
---@field type "run_started"
---@field turnId basis.TurnId
---@field schema integer EVENT_SCHEMA_VERSION of the writer
---@field basis string version of the daemon or SDK
---@field sessionId basis.SessionId
---@field workspace basis.AbsolutePath
---@field model string
---@field provider string
---@field contextFiles? basis.ContextFile[] (default {})
---@field skillsDirs? basis.AbsolutePath[] (default {})
---@field skills? basis.SkillSummary[] (default {})
---@field templatesDirs? basis.AbsolutePath[] (default {})
---@field templates? basis.TemplateSummary[] (default {})
---@field mcpFiles? basis.ContextFile[] (default {})
---@field mcpServers? string[] (default {})
---@field resumed? boolean carries an interrupted turn on instead of starting one (default false)

---@class basis.UserMessage
---@field type "user_message"
---@field text string
---@field imageCount? integer (default 0)
---@field turnId? basis.TurnId
---@field by? basis.Actor

---@class basis.AssistantDelta
---@field type "assistant_delta"
---@field text string
---@field messageId? basis.MessageId

---@class basis.AssistantReasoningDelta
---@field type "assistant_reasoning_delta"
---@field text string
---@field messageId? basis.MessageId

--- The whole text of one assistant message; replaces what its deltas painted.
---@class basis.AssistantMessage
---@field type "assistant_message"
---@field text string
---@field messageId? basis.MessageId

---@class basis.ToolQueued
---@field type "tool_queued"
---@field toolCallId basis.ToolCallId
---@field toolName string
---@field summary string
---@field mutability? basis.Mutability (default "unknown")
---@field input? any parsed JSON, else the raw string; cut when over 32 KiB (default {})

---@class basis.ToolStarted
---@field type "tool_started"
---@field toolCallId basis.ToolCallId
---@field toolName string

---@class basis.ToolProgress
---@field type "tool_progress"
---@field toolCallId basis.ToolCallId
---@field toolName string
---@field progress string

--- The end of one tool call. The stream carries a summary only; `result_id` pages the full result.
---@class basis.ToolCompleted
---@field type "tool_completed"
---@field toolCallId basis.ToolCallId
---@field toolName string
---@field summary string
---@field isError boolean
---@field resultId? basis.ResultId
---@field diff? basis.FileDiff[] (default {})
---@field durationMs? integer

---@class basis.PermissionRequested
---@field type "permission_requested"
---@field requestId string
---@field toolCallId basis.ToolCallId
---@field toolName string
---@field description string
---@field preview basis.Preview
---@field sideEffectLevel? basis.SideEffect

---@class basis.PermissionResolved
---@field type "permission_resolved"
---@field requestId string
---@field toolCallId basis.ToolCallId
---@field toolName string
---@field outcome "allowed"|"denied"|string
---@field ruleScope? "process"|"session"|"project"|"global"|string

---@class basis.TaskUpdated
---@field type "task_updated"
---@field taskId string
---@field kind "subagent"|"background_task"|"teammate"|string
---@field status "spawned"|"running"|"finished"|"failed"|string
---@field title string
---@field detail? string

---@class basis.CompactionStarted
---@field type "compaction_started"
---@field agentId basis.SessionId

---@class basis.CompactionCompleted
---@field type "compaction_completed"
---@field agentId basis.SessionId
---@field replacedItems integer
---@field preservedItems integer
---@field transcriptLen integer
---@field extractedFacts integer
---@field summaryPreview string

---@class basis.RequestToolResultsElided
---@field type "request_tool_results_elided"
---@field agentId basis.SessionId
---@field policy table<string, any>
---@field canonicalToolResultContentBytes integer
---@field projectedToolResultContentBytes integer
---@field results table<string, any>[]

---@class basis.MemoryUpdated
---@field type "memory_updated"
---@field agentId basis.SessionId
---@field storedRecords integer

--- Tokens of one model response.
---@class basis.UsageReported
---@field type "usage"
---@field agentId basis.SessionId
---@field inputTokens integer
---@field outputTokens integer
---@field cacheReadTokens integer
---@field cacheCreationTokens integer
---@field reasoningTokens? integer
---@field thoughtsTokens? integer
---@field model? string the model that answered
---@field costNanoUsd? integer billionths of a US dollar; unset when the price is not known

---@class basis.Notice
---@field type "notice"
---@field severity? "info"|"warning"|string (default "info")
---@field message string

--- A model request failed and will be sent again. Text already painted for `discarded_message_id` is void.
---@class basis.Retry
---@field type "retry"
---@field agentId basis.SessionId
---@field error string
---@field attempt integer
---@field maxAttempts integer
---@field nextDelayMs integer
---@field discardedMessageId? basis.MessageId

---@class basis.ErrorEvent
---@field type "error"
---@field message string
---@field recoverable? boolean (default false)

--- The conversation continues from `entry_id` (unset: from its beginning); what came after is off the path.
---@class basis.Branched
---@field type "branched"
---@field entryId? basis.EntryId
---@field abandonedEntries integer

--- Last event of a turn. `message` is set when `status` is not `ok`; a bound shows in `stopped_by`.
---@class basis.RunFinished
---@field type "run_finished"
---@field turnId basis.TurnId
---@field status basis.TurnStatus
---@field message? string
---@field stoppedBy? basis.StoppedBy
---@field usage? basis.Usage

---@class basis.TurnQueued
---@field type "turn_queued"
---@field turnId basis.TurnId
---@field position integer how many turns run before it
---@field by? basis.Actor

---@class basis.AskOpened
---@field type "ask_opened"
---@field ask basis.Ask

--- An ask was answered, or withdrawn by the daemon (`by.kind` is `daemon`, `reason` says why).
---@class basis.AskClosed
---@field type "ask_closed"
---@field askId basis.AskId
---@field by basis.Actor
---@field decision basis.Decision
---@field scope? string (default "once")
---@field reason? string

---@class basis.ConfigChanged
---@field type "config_changed"
---@field option string
---@field value string
---@field by? basis.Actor

--- Something a session list shows has changed. Only changed fields are set.
---@class basis.InfoChanged
---@field type "info_changed"
---@field title? string
---@field state? basis.SessionState

--- What a session is doing, told so that every client can show the same thing.
---@class basis.SessionState
---@field kind "idle"|"working"|"waiting_person"|"waiting_provider"|"queued"|"interrupted"|"ended"|string
---@field since basis.Timestamp
---@field detail string
---@field askId? basis.AskId
---@field until? basis.Timestamp
---@field cause? string

---@class basis.ClientAttached
---@field type "client_attached"
---@field client basis.Actor

---@class basis.ClientDetached
---@field type "client_detached"
---@field client basis.Actor

---@class basis.LeaseConflict
---@field type "lease_conflict"
---@field holder string

--- `basis/session/event`: one numbered record of a session.
---@class basis.SessionEvent
---@field sessionId basis.SessionId
---@field seq basis.Seq
---@field time basis.Timestamp
---@field event basis.AnyEvent

--- `basis/session/lagged`: this client fell too far behind and is no longer attached; attach again after `seq`.
---@class basis.SessionLagged
---@field sessionId basis.SessionId
---@field seq basis.Seq

---@class basis.ClientInfo
---@field name string
---@field version? string (default "")
---@field kind? basis.ClientKind (default "lsp")

--- What the client is able to do for the person in front of it.
---@class basis.ClientCan
---@field approve? boolean (default false)
---@field applyEdit? boolean (default false)
---@field openDiff? boolean (default false)
---@field notify? boolean (default false)

--- `initialize` → `capabilities.experimental.basis`, stated by a client of the basis protocol.
---@class basis.ClientHello
---@field protocolVersions integer[]
---@field client basis.ClientInfo
---@field clientId? string stable for one window or process across reconnects
---@field can? basis.ClientCan (default …)

---@class basis.DaemonInfo
---@field version string
---@field pid integer
---@field instanceId string changes at every start
---@field startedAt basis.Timestamp

---@class basis.Limits
---@field maxFrameBytes integer
---@field maxPromptBytes integer

--- The result's `capabilities.experimental.basis`.
---@class basis.ServerHello
---@field protocolVersion integer
---@field daemon basis.DaemonInfo
---@field limits basis.Limits
---@field features? string[] (default {})

---@class basis.Counts
---@field clients? integer (default 0)
---@field workspaces? integer (default 0)
---@field sessions? table<string, integer> (default {})
---@field pendingAsks? integer (default 0)

--- One way to reach a model: `ready`, `needs_key`, `offered` (found, not yet agreed to), `unavailable`.
---@class basis.ProviderState
---@field provider string
---@field state "ready"|"needs_key"|"offered"|"unavailable"|string
---@field detail? string (default "")

---@class basis.DaemonStatusResult
---@field version string
---@field pid integer
---@field instanceId string
---@field startedAt basis.Timestamp
---@field uptimeS number
---@field counts basis.Counts
---@field memoryBytes integer
---@field dataDir basis.AbsolutePath
---@field socket string
---@field providers? basis.ProviderState[] (default {})

---@class basis.PingResult
---@field now basis.Timestamp

---@class basis.WorkspaceSummary
---@field path basis.AbsolutePath
---@field provider? string
---@field model? string
---@field clients? integer (default 0)

--- Result of `basis/daemon/subscribe`; `basis/daemon/event` keeps it current.
---@class basis.DaemonSnapshot
---@field workspaces basis.WorkspaceSummary[]
---@field sessions basis.SessionSummary[]
---@field asks basis.Ask[]

--- A live session, as `basis/daemon/subscribe` lists it.
---@class basis.SessionSummary
---@field sessionId basis.SessionId
---@field workspace basis.AbsolutePath
---@field title string
---@field state string the `kind` of its SessionState
---@field updatedAt basis.Timestamp
---@field pendingAsks? integer (default 0)

--- `basis/daemon/event`: `kind` names what changed; the part that belongs to it is set.
---@class basis.DaemonEvent
---@field kind "session_changed"|"session_removed"|"workspace_opened"|"workspace_closed"|"ask_opened"|"ask_closed"|"auth_changed"|"stopping"|string
---@field session? basis.SessionSummary
---@field sessionId? basis.SessionId
---@field workspace? basis.WorkspaceSummary
---@field ask? basis.Ask
---@field askId? string
---@field by? basis.Actor who answered or withdrew the ask that closed
---@field provider? string whose key was stored or forgotten

---@class basis.ProcessesParams
---@field sessionId? basis.SessionId

---@class basis.ProcessInfo
---@field pid integer
---@field what "shell"|"mcp"|"hook"|"tool"|"pocket"|string
---@field command string
---@field sessionId? basis.SessionId
---@field ageS number
---@field rssBytes? integer (default 0)

---@class basis.ProcessesResult
---@field processes basis.ProcessInfo[]

---@class basis.StopParams
---@field mode? "drain"|"now" (default "drain")

--- US dollars per million tokens, as a decimal number in a string. What is unset is not priced.
---@class basis.ModelPrice
---@field input string
---@field output string
---@field cacheRead? string
---@field cacheWrite? string
---@field asOf? string the day the price was read: 2026-01-31

--- A model as far as its provider tells; unknown is left out.
---@class basis.ModelInfo
---@field id string
---@field provider string
---@field displayName? string
---@field contextWindow? integer tokens
---@field description? string
---@field createdAt? integer seconds since the epoch
---@field efforts? string[] what it takes; unset when that is not known
---@field price? basis.ModelPrice

--- Without `workspace`, of all open ones. Answers are kept for some minutes; `refresh` asks again.
---@class basis.ModelListParams
---@field workspace? basis.AbsolutePath
---@field provider? string
---@field refresh? boolean (default false)

--- Why a provider's models are missing, or are the ones it last told of.
---@class basis.ModelListProblem
---@field provider string
---@field message string
---@field hint? string

--- Models of every provider that can be reached, those of one provider together, newest first.
---@class basis.ModelListResult
---@field models basis.ModelInfo[]
---@field degraded? string[] providers that could not be asked (default {})
---@field problems? basis.ModelListProblem[] (default {})

--- Where the key of one provider's own API, or of one endpoint, comes from. No field holds any part of a key.
---@class basis.AuthState
---@field provider string
---@field baseUrl? string set for a key that belongs to this endpoint
---@field source "store"|"workspace_environment"|"daemon_environment"|"none"|"not_needed"|string
---@field detail? string the source in words: the keyring, OPENAI_API_KEY sent by nvim (default "")
---@field also? string[] what else would apply, in order, in words (default {})
---@field variable? string the environment variable a key may be in
---@field problem? string why a stored key can't be used

--- Without `workspace`, the environments of all open ones are looked at.
---@class basis.AuthStatusParams
---@field workspace? basis.AbsolutePath

---@class basis.AuthStatusResult
---@field providers basis.AuthState[]

--- Credentials are accepted, never returned. With `base_url` the key belongs to that endpoint and to nobody else.
---@class basis.AuthSetParams
---@field provider string
---@field secret string
---@field baseUrl? string
---@field wire? string what the endpoint speaks, for trying the key
---@field verify? boolean try the key first; one that is refused is not stored (default false)
---@field inFile? boolean keep it in a private file even where there is a keyring (default false)

---@class basis.AuthSetResult
---@field state basis.AuthState
---@field verified? boolean unset when it was not, or could not be, tried
---@field problem? string why it could not be tried

---@class basis.AuthForgetParams
---@field provider string
---@field baseUrl? string

--- `$/cancelRequest`.
---@class basis.CancelParams
---@field id integer|string

--- The parts of LSP's `initialize` that a basis client needs to send; the rest is LSP's.
---@class basis.InitializeParams
---@field processId? integer
---@field capabilities? table<string, any> (default {})

---@class basis.Trust
---@field state? "trusted"|"pending"|"none"|string (default "none")
---@field pending? string[] files that would run programs and await consent (default {})

--- A problem in a file the workspace is configured by. Lines and columns start at 1.
---@class basis.WorkspaceDiagnostic
---@field file basis.AbsolutePath
---@field line? integer (default 1)
---@field column? integer (default 1)
---@field kind string
---@field message string

---@class basis.WorkspaceCounts
---@field sessions? integer (default 0)
---@field liveSessions? integer (default 0)
---@field clients? integer (default 0)

---@class basis.WorkspaceInfo
---@field path basis.AbsolutePath canonical
---@field trust basis.Trust
---@field provider? string
---@field model? string
---@field diagnostics basis.WorkspaceDiagnostic[]
---@field counts basis.WorkspaceCounts
---@field notices? string[] sentences for the person, e.g. how to connect a model (default {})

--- `env` is the client's environment snapshot: commands run with it and credentials are looked up in it.
---@class basis.WorkspaceOpenParams
---@field path basis.AbsolutePath
---@field env? table<string, string>
---@field additionalDirectories? basis.AbsolutePath[] (default {})

---@class basis.WorkspacePathParams
---@field path basis.AbsolutePath

---@class basis.WorkspaceListResult
---@field workspaces basis.WorkspaceInfo[]

---@class basis.Setting
---@field value string
---@field path basis.AbsolutePath
---@field scope string

---@class basis.ContextDocument
---@field path basis.AbsolutePath
---@field scope string
---@field bytes integer

--- Everything discovered, and from which file.
---@class basis.WorkspaceDescription
---@field info basis.WorkspaceInfo
---@field context? basis.ContextDocument[] (default {})
---@field config? table<string, basis.Setting> (default {})
---@field configFiles? basis.ContextFile[] (default {})
---@field memories? any[] (default {})
---@field skills? any[] (default {})
---@field templates? basis.TemplateSummary[] (default {})
---@field hooks? any[] (default {})
---@field declaredTools? any[] (default {})
---@field mcpServers? string[] (default {})
---@field tools? string[] names the model is offered (default {})

---@class basis.FingerprintResult
---@field hex? string
---@field files? integer
---@field unknown? string

---@class basis.TrustParams
---@field path basis.AbsolutePath
---@field digests? string[] (default {})
---@field revoke? boolean (default false)

---@class basis.TemplateListParams
---@field workspace basis.AbsolutePath

---@class basis.TemplateListResult
---@field templates basis.TemplateSummary[]

---@class basis.FileSearchParams
---@field workspace basis.AbsolutePath
---@field query string
---@field limit? integer at least 1, at most 1000 (default 50)

---@class basis.FileSearchResult
---@field paths string[]

---@class basis.McpListParams
---@field workspace? basis.AbsolutePath

---@class basis.McpServerInfo
---@field name string
---@field workspace basis.AbsolutePath
---@field state "connected"|"connecting"|"failed"|"needs_auth"|string
---@field tools? integer (default 0)
---@field error? string

---@class basis.McpListResult
---@field servers basis.McpServerInfo[]

---@class basis.McpRestartParams
---@field workspace basis.AbsolutePath
---@field name string

---@class basis.MemoryParams
---@field workspace basis.AbsolutePath
---@field name? string

---@class basis.MemoryEntry
---@field name string
---@field description string
---@field type "user"|"feedback"|"project"|"reference"|string
---@field path basis.AbsolutePath
---@field scope string

---@class basis.MemoryListResult
---@field memories basis.MemoryEntry[]

---@class basis.MemoryReadResult
---@field text string

---@class basis.Rule
---@field toolName string
---@field pattern? string
---@field allow boolean
---@field scope "process"|"session"|"project"|"global"|string
---@field reason? string

---@class basis.RuleListParams
---@field workspace? basis.AbsolutePath
---@field sessionId? basis.SessionId

--- In the order in which they are asked: scope by scope, patterns before bare tools.
---@class basis.RuleListResult
---@field rules basis.Rule[]
---@field file? basis.AbsolutePath where all but `process` rules are kept

---@class basis.RuleRemoveParams
---@field rule basis.Rule
---@field workspace? basis.AbsolutePath
---@field sessionId? basis.SessionId

--- What would become of this call in a session, or in a new one of a workspace. Nobody is asked, nothing runs.
---@class basis.RuleExplainParams
---@field tool string
---@field input any
---@field workspace? basis.AbsolutePath
---@field sessionId? basis.SessionId

--- A rule for the same tool that does not decide.
---@class basis.RuleRunnerUp
---@field rule basis.Rule
---@field why string why it does not, for a person

--- `prompt`: a person would be asked. `file` is where the rule is kept, or what can't be read (`rules_file`).
---@class basis.RuleExplainResult
---@field outcome "allow"|"deny"|"prompt"|string
---@field decidedBy "tool"|"authorizer"|"mode"|"rule"|"rules_file"|"person"|string
---@field why string one sentence for a person
---@field rule? basis.Rule
---@field file? basis.AbsolutePath
---@field runnersUp? basis.RuleRunnerUp[] (default {})
---@field uncovered? string[] commands of the line that no rule covers (default {})

---@class basis.ConfigChoice
---@field value string
---@field label string

--- One thing about a session a person may set.
---@class basis.ConfigOption
---@field option string
---@field category "mode"|"model"|"effort"|string
---@field label string
---@field value string
---@field choices basis.ConfigChoice[]

---@class basis.SessionInfo
---@field sessionId basis.SessionId
---@field workspace basis.AbsolutePath
---@field title string
---@field state basis.SessionState
---@field createdAt basis.Timestamp
---@field updatedAt basis.Timestamp
---@field turns integer
---@field messages integer
---@field provider? string
---@field model? string
---@field config basis.ConfigOption[]
---@field usage basis.Usage
---@field pendingAsks integer
---@field parent? basis.SessionId
---@field ephemeral? boolean (default false)

--- Nothing is written before the first prompt. `session_id` may be chosen by the client: 1 to 128 of
--- `[A-Za-z0-9._-]`, not starting with a dot or `x-`.
---@class basis.SessionNewParams
---@field workspace basis.AbsolutePath
---@field sessionId? basis.SessionId
---@field title? string
---@field config? table<string, string> (default {})
---@field mcpServers? any[] (default {})
---@field ephemeral? boolean (default false)

---@class basis.SessionListParams
---@field workspace? basis.AbsolutePath
---@field query? string
---@field cursor? string
---@field limit? integer at least 1, at most 500 (default 50)

--- Most recently used first.
---@class basis.SessionListResult
---@field sessions basis.SessionInfo[]
---@field nextCursor? string

---@class basis.SessionIdParams
---@field sessionId basis.SessionId

--- With `after_seq`, every later event follows exactly once. Without it, a snapshot stands for the past.
---@class basis.SessionAttachParams
---@field sessionId basis.SessionId
---@field afterSeq? basis.Seq

--- One entry of the conversation, oldest first. `kind` decides which fields are set.
---@class basis.HistoryItem
---@field entryId basis.EntryId
---@field kind "user"|"assistant"|"tool"|"context"|"delegation"|"summary"|string
---@field text? string (default "")
---@field reasoning? string
---@field turnId? basis.TurnId
---@field messageId? basis.MessageId
---@field toolCallId? basis.ToolCallId
---@field toolName? string
---@field summary? string
---@field input? any
---@field isError? boolean (default false)
---@field resultId? basis.ResultId
---@field diff? basis.FileDiff[] (default {})
---@field imageCount? integer (default 0)
---@field at? basis.Timestamp
---@field by? basis.Actor who said it, of a `user` entry

--- Text of the assistant message that is being streamed right now.
---@class basis.PartialMessage
---@field messageId basis.MessageId
---@field text? string (default "")
---@field reasoning? string (default "")

--- The conversation up to the attach's `seq`. With `reset`, whatever the client had painted is void.
---@class basis.SessionSnapshot
---@field items basis.HistoryItem[]
---@field previousCursor? string basis/session/history pages back from here
---@field partial? basis.PartialMessage
---@field reset? boolean (default false)

---@class basis.TurnInfo
---@field turnId basis.TurnId
---@field state "running"|"queued"|"interrupted"|string
---@field startedAt? basis.Timestamp
---@field by? basis.Actor

---@class basis.SessionAttachResult
---@field info basis.SessionInfo
---@field seq basis.Seq
---@field snapshot? basis.SessionSnapshot
---@field turn? basis.TurnInfo
---@field queued? basis.TurnInfo[] (default {})
---@field asks basis.Ask[]
---@field clients? basis.Actor[] (default {})

--- Without `text`, reads the draft; with it, replaces it (empty clears).
---@class basis.SessionDraftParams
---@field sessionId basis.SessionId
---@field text? string

---@class basis.SessionDraftResult
---@field text string
---@field by? basis.Actor
---@field at? basis.Timestamp

---@class basis.SessionUndoParams
---@field sessionId basis.SessionId
---@field toTurn basis.TurnId
---@field preview? boolean (default false)

---@class basis.UndoFile
---@field path string
---@field change "restored"|"removed"|"recreated"|string
---@field conflict? string

---@class basis.SessionUndoResult
---@field files basis.UndoFile[]
---@field cannotUndo string[]

---@class basis.SessionRenameParams
---@field sessionId basis.SessionId
---@field title string not empty, no longer than 500

---@class basis.SessionForkParams
---@field sessionId basis.SessionId
---@field atEntry? basis.EntryId

---@class basis.SessionExportResult
---@field jsonl string

--- Pages in both directions. No cursor starts at the newest end (`before`) or the oldest (`after`).
---@class basis.SessionHistoryParams
---@field sessionId basis.SessionId
---@field cursor? string
---@field direction? "before"|"after" (default "before")
---@field limit? integer at least 1, at most 1000 (default 100)

--- Items are oldest first whatever the direction.
---@class basis.SessionHistoryResult
---@field items basis.HistoryItem[]
---@field beforeCursor? string
---@field afterCursor? string

---@class basis.SessionSetConfigParams
---@field sessionId basis.SessionId
---@field option string
---@field value string

--- Limits of one turn. A tripped bound is named in `stoppedBy`.
---@class basis.Bounds
---@field deadlineMs? integer more than 0
---@field toolBudget? integer at least 0
---@field tokenBudget? integer more than 0

--- Ask for a typed answer of this JSON Schema instead of prose.
---@class basis.OutputRequest
---@field name string
---@field description string
---@field schema table<string, any>
---@field keepsTools? boolean (default false)

--- What happens to an ask nobody is there to answer: `wait`, or `deny` with this reason.
---@class basis.Unattended
---@field policy? "wait"|"deny" (default "wait")
---@field reason? string

---@class basis.SessionPromptParams
---@field sessionId basis.SessionId
---@field input basis.InputBlock[] not empty
---@field bounds? basis.Bounds
---@field output? basis.OutputRequest
---@field whenBusy? "reject"|"queue"|"steer" (default "queue")
---@field unattended? basis.Unattended

--- Acceptance only. The end of the turn is the event `run_finished`.
---@class basis.SessionPromptResult
---@field turnId basis.TurnId
---@field state "running"|"queued"|"steering"|string

---@class basis.TurnParams
---@field sessionId basis.SessionId
---@field turnId? basis.TurnId

---@class basis.TurnWaitParams
---@field sessionId basis.SessionId
---@field turnId basis.TurnId
---@field timeoutMs? integer at least 0

--- How a turn ended: the result of `basis/turn/wait`. When its `timeoutMs` is up first the answer is an error of
--- kind `timeout`; wait again. An interrupted turn is answered at once with `interrupted`; it may be resumed.
---@class basis.TurnOutcome
---@field status basis.TurnStatus
---@field stoppedBy? basis.StoppedBy
---@field finalMessage? string
---@field output? any
---@field usage basis.Usage
---@field error? string

---@class basis.TurnSteerParams
---@field sessionId basis.SessionId
---@field expectedTurnId basis.TurnId
---@field input basis.InputBlock[] not empty

---@class basis.TurnResumeResult
---@field turnId basis.TurnId

---@class basis.TaskListParams
---@field sessionId? basis.SessionId

---@class basis.TaskInfo
---@field taskId string
---@field sessionId basis.SessionId
---@field kind string
---@field status string
---@field title string

---@class basis.TaskListResult
---@field tasks basis.TaskInfo[]

---@class basis.TaskIdParams
---@field taskId string

---@class basis.TaskOutputResult
---@field text string

--- Offsets and limits count bytes of UTF-8; pages are cut at character boundaries.
---@class basis.ToolResultParams
---@field resultId basis.ResultId
---@field offset? integer at least 0 (default 0)
---@field limit? integer at least 1, at most 1048576 (default 65536)

---@class basis.ToolResultPage
---@field text string
---@field nextOffset? integer
---@field totalBytes integer

--- `error.data` of every error the daemon answers with.
---@class basis.ErrorData
---@field kind string stable word, one per cause: no_such_session, busy, stale_turn, …
---@field message string
---@field hint? string what to do about it
---@field details? table<string, any>

return {
  PROTOCOL_VERSION = 1,
  methods = {
    daemon_status = "basis/daemon/status",
    daemon_ping = "basis/daemon/ping",
    daemon_subscribe = "basis/daemon/subscribe",
    daemon_processes = "basis/daemon/processes",
    daemon_stop = "basis/daemon/stop",
    daemon_restart = "basis/daemon/restart",
    workspace_open = "basis/workspace/open",
    workspace_list = "basis/workspace/list",
    workspace_close = "basis/workspace/close",
    workspace_reload = "basis/workspace/reload",
    workspace_describe = "basis/workspace/describe",
    workspace_fingerprint = "basis/workspace/fingerprint",
    workspace_trust = "basis/workspace/trust",
    session_new = "basis/session/new",
    session_list = "basis/session/list",
    session_attach = "basis/session/attach",
    session_detach = "basis/session/detach",
    session_draft = "basis/session/draft",
    session_undo = "basis/session/undo",
    session_close = "basis/session/close",
    session_rename = "basis/session/rename",
    session_delete = "basis/session/delete",
    session_fork = "basis/session/fork",
    session_compact = "basis/session/compact",
    session_export = "basis/session/export",
    session_history = "basis/session/history",
    session_set_config = "basis/session/setConfig",
    session_prompt = "basis/session/prompt",
    turn_wait = "basis/turn/wait",
    turn_steer = "basis/turn/steer",
    turn_resume = "basis/turn/resume",
    turn_cancel = "basis/turn/cancel",
    turn_stop = "basis/turn/stop",
    ask_list = "basis/ask/list",
    ask_answer = "basis/ask/answer",
    model_list = "basis/model/list",
    auth_status = "basis/auth/status",
    auth_set = "basis/auth/set",
    auth_forget = "basis/auth/forget",
    mcp_list = "basis/mcp/list",
    mcp_restart = "basis/mcp/restart",
    task_list = "basis/task/list",
    task_output = "basis/task/output",
    task_kill = "basis/task/kill",
    memory_list = "basis/memory/list",
    memory_read = "basis/memory/read",
    memory_forget = "basis/memory/forget",
    rule_list = "basis/rule/list",
    rule_remove = "basis/rule/remove",
    rule_explain = "basis/rule/explain",
    template_list = "basis/template/list",
    file_search = "basis/file/search",
    tool_result = "basis/tool/result",
    session_event = "basis/session/event",
    session_lagged = "basis/session/lagged",
    daemon_event = "basis/daemon/event",
  },
  event_types = {
    run_started = true,
    user_message = true,
    assistant_delta = true,
    assistant_reasoning_delta = true,
    assistant_message = true,
    tool_queued = true,
    tool_started = true,
    tool_progress = true,
    tool_completed = true,
    permission_requested = true,
    permission_resolved = true,
    task_updated = true,
    compaction_started = true,
    compaction_completed = true,
    request_tool_results_elided = true,
    memory_updated = true,
    usage = true,
    notice = true,
    retry = true,
    error = true,
    branched = true,
    run_finished = true,
    turn_queued = true,
    ask_opened = true,
    ask_closed = true,
    config_changed = true,
    info_changed = true,
    client_attached = true,
    client_detached = true,
    lease_conflict = true,
  },
  error_codes = {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    METHOD_NOT_FOUND = -32601,
    INVALID_PARAMS = -32602,
    INTERNAL_ERROR = -32603,
    SERVER_NOT_INITIALIZED = -32002,
    OVERLOADED = -32001,
    AUTH_REQUIRED = -32000,
    REQUEST_CANCELLED = -32800,
    REQUEST_FAILED = -32803,
  },
}
