// Generated from basis_protocol; do not edit. `make gen` writes it again.
//
// A field that is left out has its @defaultValue. A newer daemon may send fields, words and event types that are not
// listed here: ignore them.

export const PROTOCOL_VERSION = 1;

/** RFC 3339, UTC, milliseconds: 2026-01-31T12:00:00.000Z */
export type Timestamp = string;

/** absolute path in the daemon's file system */
export type AbsolutePath = string;

/** the persisted agent id; stable across resume, restart and reboot */
export type SessionId = string;

/** one prompt and all that follows from it, unique within its session */
export type TurnId = string;

/** one question to a person, unique in the daemon's data directory */
export type AskId = string;

/** one tool call, unique within its session */
export type ToolCallId = string;

/** one assistant message, shared by its deltas and its final item */
export type MessageId = string;

/** one transcript entry */
export type EntryId = string;

/** `<sessionId>/<id>` of one tool result kept in full, for basis/tool/result */
export type ResultId = string;

/** number of an event in its session: starts at 1, has no holes */
export type Seq = number;

/** One part of a prompt. A client that only types text sends a list with one `text` block. */
export type InputBlock =
  | TextBlock
  | ImageBlock
  | ResourceBlock
  | MentionBlock
  | SelectionBlock
  | DiagnosticsBlock
  | TemplateBlock;

/** What a person is shown before they answer: exactly what will run. */
export type Preview = DiffPreview | CommandPreview | CallPreview;

export type Decision = "allow" | "deny";

export type Scope = "once" | "session" | "project" | "global";

export type SideEffect = "none" | "local_state" | "process" | "external" | (string & {});

export type Mutability = "read_only" | "mutating" | "unknown" | (string & {});

export type StoppedBy = "deadline" | "tool_budget" | "token_budget" | "stop_requested" | (string & {});

export type TurnStatus = "ok" | "error" | "cancelled" | "interrupted" | (string & {});

/** Every event of version 1. */
export type AnyEvent =
  | RunStarted
  | UserMessage
  | AssistantDelta
  | AssistantReasoningDelta
  | AssistantMessage
  | ToolQueued
  | ToolStarted
  | ToolProgress
  | ToolCompleted
  | PermissionRequested
  | PermissionResolved
  | TaskUpdated
  | CompactionStarted
  | CompactionCompleted
  | RequestToolResultsElided
  | MemoryUpdated
  | UsageReported
  | Notice
  | Retry
  | ErrorEvent
  | Branched
  | RunFinished
  | TurnQueued
  | AskOpened
  | AskClosed
  | ConfigChanged
  | InfoChanged
  | ClientAttached
  | ClientDetached
  | LeaseConflict;

export type ClientKind = "vscode" | "nvim" | "cli" | "acp" | "lsp" | (string & {});

/** A message with no fields: `{}`. */
export type Empty = Readonly<Record<string, never>>;

/** Zero-based line and UTF-16 character, as in LSP. */
export interface Position {
  /** at least 0 */
  readonly line: number;
  /**
   * at least 0
   * @defaultValue `0`
   */
  readonly character?: number;
}

export interface Range {
  readonly start: Position;
  readonly end: Position;
}

export interface TextBlock {
  readonly type: "text";
  readonly text: string;
}

/** An image: base64 bytes with their media type, or a URI. Exactly one of `data` and `uri`. */
export interface ImageBlock {
  readonly type: "image";
  readonly mimeType?: string;
  /** base64 */
  readonly data?: string;
  readonly uri?: string;
}

/** A file, a range of one, or the unsaved text of a buffer (`text`). */
export interface ResourceBlock {
  readonly type: "resource";
  readonly uri: string;
  readonly text?: string;
  readonly range?: Range;
  readonly mimeType?: string;
}

/** A path only; the agent reads it if it wants to. */
export interface MentionBlock {
  readonly type: "mention";
  readonly path: string;
}

export interface SelectionBlock {
  readonly type: "selection";
  readonly uri: string;
  readonly range: Range;
  readonly text: string;
}

export interface Diagnostic {
  readonly range: Range;
  readonly message: string;
  readonly severity?: "error" | "warning" | "information" | "hint" | (string & {});
  readonly source?: string;
  readonly code?: string;
}

export interface DiagnosticsBlock {
  readonly type: "diagnostics";
  readonly uri: string;
  readonly diagnostics: readonly Diagnostic[];
}

export interface TemplateBlock {
  readonly type: "template";
  readonly name: string;
  /** @defaultValue `""` */
  readonly arguments?: string;
}

/** A proposed or finished change of one file. `patch` is a unified diff; `old`/`new` are whole texts when small. */
export interface FileDiff {
  readonly path: string;
  readonly patch: string;
  readonly old?: string;
  readonly new?: string;
  /** @defaultValue `false` */
  readonly created?: boolean;
  /**
   * patch was cut; the change itself was not
   * @defaultValue `false`
   */
  readonly truncated?: boolean;
}

export interface DiffPreview {
  readonly type: "diff";
  readonly files: readonly FileDiff[];
}

/** What a command seems to do. A heuristic for the person who decides, never a boundary. */
export interface Classification {
  readonly intent: "read_only" | "write" | "destructive" | "network" | "process_management" | "package_management" | "system_admin" | "unknown" | (string & {});
  /** @defaultValue `[]` */
  readonly warnings?: readonly string[];
}

export interface CommandPreview {
  readonly type: "command";
  readonly command: string;
  readonly cwd: AbsolutePath;
  /** @defaultValue `"local"` */
  readonly target?: string;
  readonly classification?: Classification;
}

export interface CallPreview {
  readonly type: "call";
  readonly input: unknown;
}

/** One way to answer, ready to be a button. Sending its decision and scope back is an answer. */
export interface AskOption {
  readonly optionId: string;
  readonly label: string;
  readonly decision: Decision;
  readonly scope: Scope;
}

/** A question that waits. It outlives the client that saw it first, a restart and a reboot. */
export interface Ask {
  readonly askId: AskId;
  readonly sessionId: SessionId;
  readonly workspace: AbsolutePath;
  readonly kind: "tool" | "question" | "elicitation" | "sign_in" | "conflict" | (string & {});
  readonly title: string;
  readonly description: string;
  readonly toolCallId?: ToolCallId;
  readonly toolName?: string;
  readonly sideEffect?: SideEffect;
  readonly preview: Preview;
  readonly options: readonly AskOption[];
  readonly createdAt: Timestamp;
  readonly expiresAt?: Timestamp;
}

/** Who did something: a client by name, or the daemon itself. */
export interface Actor {
  readonly client: string;
  /** @defaultValue `"daemon"` */
  readonly kind?: "vscode" | "nvim" | "cli" | "acp" | "lsp" | "daemon" | "sdk" | (string & {});
  readonly clientId?: string;
}

export interface AskListParams {
  readonly workspace?: AbsolutePath;
  readonly sessionId?: SessionId;
}

export interface AskListResult {
  readonly asks: readonly Ask[];
}

/** The first answer wins. `reason` on a denial is what the model reads. `pattern` narrows what is remembered. */
export interface AskAnswerParams {
  readonly askId: AskId;
  readonly decision: Decision;
  /** @defaultValue `"once"` */
  readonly scope?: Scope;
  readonly reason?: string;
  readonly pattern?: string;
}

export interface AskAnswerResult {
  readonly outcome: "allowed" | "denied" | (string & {});
}

/** `error.data.details` of `ask_decided`: who answered first, what, and when. */
export interface AskDecided {
  readonly by: Actor;
  readonly decision: Decision;
  /** once, session, project or global */
  readonly scope: string;
  readonly at: Timestamp;
  readonly reason?: string;
}

/** A discovered file and where it stands: `global`, `ancestor:N` or `workspace`. */
export interface ContextFile {
  readonly path: AbsolutePath;
  readonly scope: string;
}

export interface SkillSummary {
  readonly name: string;
  readonly description: string;
}

export interface TemplateSummary {
  readonly name: string;
  readonly description: string;
  readonly argumentHint?: string;
}

/**
 * Tokens as providers reported them. Cache counts are inside `input_tokens`; reasoning is inside `output_tokens`,
 * thoughts are outside it.
 *
 * `cost_nano_usd` is what those of them cost whose price was known when they were reported, `priced_tokens`: all of
 * them when that equals input and output together, none when it is zero.
 */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cacheReadTokens: number;
  readonly cacheCreationTokens: number;
  readonly reasoningTokens: number;
  readonly thoughtsTokens: number;
  /** billionths of a US dollar */
  readonly costNanoUsd: number;
  /** input and output tokens that are in the cost */
  readonly pricedTokens: number;
}

/** First event of a turn. */
export interface RunStarted {
  readonly type: "run_started";
  readonly turnId: TurnId;
  /** EVENT_SCHEMA_VERSION of the writer */
  readonly schema: number;
  /** version of the daemon or SDK */
  readonly basis: string;
  readonly sessionId: SessionId;
  readonly workspace: AbsolutePath;
  readonly model: string;
  readonly provider: string;
  /** @defaultValue `[]` */
  readonly contextFiles?: readonly ContextFile[];
  /** @defaultValue `[]` */
  readonly skillsDirs?: readonly AbsolutePath[];
  /** @defaultValue `[]` */
  readonly skills?: readonly SkillSummary[];
  /** @defaultValue `[]` */
  readonly templatesDirs?: readonly AbsolutePath[];
  /** @defaultValue `[]` */
  readonly templates?: readonly TemplateSummary[];
  /** @defaultValue `[]` */
  readonly mcpFiles?: readonly ContextFile[];
  /** @defaultValue `[]` */
  readonly mcpServers?: readonly string[];
  /**
   * carries an interrupted turn on instead of starting one
   * @defaultValue `false`
   */
  readonly resumed?: boolean;
}

export interface UserMessage {
  readonly type: "user_message";
  readonly text: string;
  /** @defaultValue `0` */
  readonly imageCount?: number;
  readonly turnId?: TurnId;
  readonly by?: Actor;
}

export interface AssistantDelta {
  readonly type: "assistant_delta";
  readonly text: string;
  readonly messageId?: MessageId;
}

export interface AssistantReasoningDelta {
  readonly type: "assistant_reasoning_delta";
  readonly text: string;
  readonly messageId?: MessageId;
}

/** The whole text of one assistant message; replaces what its deltas painted. */
export interface AssistantMessage {
  readonly type: "assistant_message";
  readonly text: string;
  readonly messageId?: MessageId;
}

export interface ToolQueued {
  readonly type: "tool_queued";
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
  readonly summary: string;
  /** @defaultValue `"unknown"` */
  readonly mutability?: Mutability;
  /**
   * parsed JSON, else the raw string; cut when over 32 KiB
   * @defaultValue `null`
   */
  readonly input?: unknown;
}

export interface ToolStarted {
  readonly type: "tool_started";
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
}

export interface ToolProgress {
  readonly type: "tool_progress";
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
  readonly progress: string;
}

/** The end of one tool call. The stream carries a summary only; `result_id` pages the full result. */
export interface ToolCompleted {
  readonly type: "tool_completed";
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
  readonly summary: string;
  readonly isError: boolean;
  readonly resultId?: ResultId;
  /** @defaultValue `[]` */
  readonly diff?: readonly FileDiff[];
  readonly durationMs?: number;
}

export interface PermissionRequested {
  readonly type: "permission_requested";
  readonly requestId: string;
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
  readonly description: string;
  readonly preview: Preview;
  readonly sideEffectLevel?: SideEffect;
}

export interface PermissionResolved {
  readonly type: "permission_resolved";
  readonly requestId: string;
  readonly toolCallId: ToolCallId;
  readonly toolName: string;
  readonly outcome: "allowed" | "denied" | (string & {});
  readonly ruleScope?: "process" | "session" | "project" | "global" | (string & {});
}

export interface TaskUpdated {
  readonly type: "task_updated";
  readonly taskId: string;
  readonly kind: "subagent" | "background_task" | "teammate" | (string & {});
  readonly status: "spawned" | "running" | "finished" | "failed" | (string & {});
  readonly title: string;
  readonly detail?: string;
}

export interface CompactionStarted {
  readonly type: "compaction_started";
  readonly agentId: SessionId;
}

export interface CompactionCompleted {
  readonly type: "compaction_completed";
  readonly agentId: SessionId;
  readonly replacedItems: number;
  readonly preservedItems: number;
  readonly transcriptLen: number;
  readonly extractedFacts: number;
  readonly summaryPreview: string;
}

export interface RequestToolResultsElided {
  readonly type: "request_tool_results_elided";
  readonly agentId: SessionId;
  readonly policy: Readonly<Record<string, unknown>>;
  readonly canonicalToolResultContentBytes: number;
  readonly projectedToolResultContentBytes: number;
  readonly results: readonly (Readonly<Record<string, unknown>>)[];
}

export interface MemoryUpdated {
  readonly type: "memory_updated";
  readonly agentId: SessionId;
  readonly storedRecords: number;
}

/** Tokens of one model response. */
export interface UsageReported {
  readonly type: "usage";
  readonly agentId: SessionId;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cacheReadTokens: number;
  readonly cacheCreationTokens: number;
  readonly reasoningTokens?: number;
  readonly thoughtsTokens?: number;
  /** the model that answered */
  readonly model?: string;
  /** billionths of a US dollar; unset when the price is not known */
  readonly costNanoUsd?: number;
}

export interface Notice {
  readonly type: "notice";
  /** @defaultValue `"info"` */
  readonly severity?: "info" | "warning" | (string & {});
  readonly message: string;
}

/** A model request failed and will be sent again. Text already painted for `discarded_message_id` is void. */
export interface Retry {
  readonly type: "retry";
  readonly agentId: SessionId;
  readonly error: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly nextDelayMs: number;
  readonly discardedMessageId?: MessageId;
}

export interface ErrorEvent {
  readonly type: "error";
  readonly message: string;
  /** @defaultValue `false` */
  readonly recoverable?: boolean;
}

/** The conversation continues from `entry_id` (unset: from its beginning); what came after is off the path. */
export interface Branched {
  readonly type: "branched";
  readonly entryId?: EntryId;
  readonly abandonedEntries: number;
}

/** Last event of a turn. `message` is set when `status` is not `ok`; a bound shows in `stopped_by`. */
export interface RunFinished {
  readonly type: "run_finished";
  readonly turnId: TurnId;
  readonly status: TurnStatus;
  readonly message?: string;
  readonly stoppedBy?: StoppedBy;
  readonly usage?: Usage;
}

export interface TurnQueued {
  readonly type: "turn_queued";
  readonly turnId: TurnId;
  /** how many turns run before it */
  readonly position: number;
  readonly by?: Actor;
}

export interface AskOpened {
  readonly type: "ask_opened";
  readonly ask: Ask;
}

/** An ask was answered, or withdrawn by the daemon (`by.kind` is `daemon`, `reason` says why). */
export interface AskClosed {
  readonly type: "ask_closed";
  readonly askId: AskId;
  readonly by: Actor;
  readonly decision: Decision;
  /** @defaultValue `"once"` */
  readonly scope?: string;
  readonly reason?: string;
}

export interface ConfigChanged {
  readonly type: "config_changed";
  readonly option: string;
  readonly value: string;
  readonly by?: Actor;
}

/** Something a session list shows has changed. Only changed fields are set. */
export interface InfoChanged {
  readonly type: "info_changed";
  readonly title?: string;
  readonly state?: SessionState;
}

/** What a session is doing, told so that every client can show the same thing. */
export interface SessionState {
  readonly kind: "idle" | "working" | "waiting_person" | "waiting_provider" | "queued" | "interrupted" | "ended" | (string & {});
  readonly since: Timestamp;
  readonly detail: string;
  readonly askId?: AskId;
  readonly until?: Timestamp;
  readonly cause?: string;
}

export interface ClientAttached {
  readonly type: "client_attached";
  readonly client: Actor;
}

export interface ClientDetached {
  readonly type: "client_detached";
  readonly client: Actor;
}

export interface LeaseConflict {
  readonly type: "lease_conflict";
  readonly holder: string;
}

/** `basis/session/event`: one numbered record of a session. */
export interface SessionEvent {
  readonly sessionId: SessionId;
  readonly seq: Seq;
  readonly time: Timestamp;
  readonly event: AnyEvent;
}

/** `basis/session/lagged`: this client fell too far behind and is no longer attached; attach again after `seq`. */
export interface SessionLagged {
  readonly sessionId: SessionId;
  readonly seq: Seq;
}

export interface ClientInfo {
  readonly name: string;
  /** @defaultValue `""` */
  readonly version?: string;
  /** @defaultValue `"lsp"` */
  readonly kind?: ClientKind;
}

/** What the client is able to do for the person in front of it. */
export interface ClientCan {
  /** @defaultValue `false` */
  readonly approve?: boolean;
  /** @defaultValue `false` */
  readonly applyEdit?: boolean;
  /** @defaultValue `false` */
  readonly openDiff?: boolean;
  /** @defaultValue `false` */
  readonly notify?: boolean;
}

/** `initialize` → `capabilities.experimental.basis`, stated by a client of the basis protocol. */
export interface ClientHello {
  readonly protocolVersions: readonly number[];
  readonly client: ClientInfo;
  /** stable for one window or process across reconnects */
  readonly clientId?: string;
  /** @defaultValue `{"approve": false, "applyEdit": false, "openDiff": false, "notify": false}` */
  readonly can?: ClientCan;
}

export interface DaemonInfo {
  readonly version: string;
  readonly pid: number;
  /** changes at every start */
  readonly instanceId: string;
  readonly startedAt: Timestamp;
}

export interface Limits {
  readonly maxFrameBytes: number;
  readonly maxPromptBytes: number;
}

/** The result's `capabilities.experimental.basis`. */
export interface ServerHello {
  readonly protocolVersion: number;
  readonly daemon: DaemonInfo;
  readonly limits: Limits;
  /** @defaultValue `[]` */
  readonly features?: readonly string[];
}

export interface Counts {
  readonly clients: number;
  readonly workspaces: number;
  readonly sessions: Readonly<Record<string, number>>;
  readonly pendingAsks: number;
}

/** One way to reach a model: `ready`, `needs_key`, `offered` (found, not yet agreed to), `unavailable`. */
export interface ProviderState {
  readonly provider: string;
  readonly state: "ready" | "needs_key" | "offered" | "unavailable" | (string & {});
  /** @defaultValue `""` */
  readonly detail?: string;
}

export interface DaemonStatusResult {
  readonly version: string;
  readonly pid: number;
  readonly instanceId: string;
  readonly startedAt: Timestamp;
  readonly uptimeS: number;
  readonly counts: Counts;
  readonly memoryBytes: number;
  readonly dataDir: AbsolutePath;
  readonly socket: string;
  /** @defaultValue `[]` */
  readonly providers?: readonly ProviderState[];
}

export interface PingResult {
  readonly now: Timestamp;
}

export interface WorkspaceSummary {
  readonly path: AbsolutePath;
  readonly provider?: string;
  readonly model?: string;
  /** @defaultValue `0` */
  readonly clients?: number;
}

/** Result of `basis/daemon/subscribe`; `basis/daemon/event` keeps it current. */
export interface DaemonSnapshot {
  readonly workspaces: readonly WorkspaceSummary[];
  readonly sessions: readonly SessionSummary[];
  readonly asks: readonly Ask[];
}

/** A live session, as `basis/daemon/subscribe` lists it. */
export interface SessionSummary {
  readonly sessionId: SessionId;
  readonly workspace: AbsolutePath;
  readonly title: string;
  /** the `kind` of its SessionState */
  readonly state: string;
  readonly updatedAt: Timestamp;
  /** @defaultValue `0` */
  readonly pendingAsks?: number;
}

/** `basis/daemon/event`: `kind` names what changed; the part that belongs to it is set. */
export interface DaemonEvent {
  readonly kind: "session_changed" | "session_removed" | "workspace_opened" | "workspace_closed" | "ask_opened" | "ask_closed" | "auth_changed" | "stopping" | (string & {});
  readonly session?: SessionSummary;
  readonly sessionId?: SessionId;
  readonly workspace?: WorkspaceSummary;
  readonly ask?: Ask;
  readonly askId?: string;
  /** who answered or withdrew the ask that closed */
  readonly by?: Actor;
  /** whose key was stored or forgotten */
  readonly provider?: string;
}

export interface ProcessesParams {
  readonly sessionId?: SessionId;
}

export interface ProcessInfo {
  readonly pid: number;
  readonly what: "shell" | "mcp" | "hook" | "tool" | "pocket" | (string & {});
  readonly command: string;
  readonly sessionId?: SessionId;
  readonly ageS: number;
  /** @defaultValue `0` */
  readonly rssBytes?: number;
}

export interface ProcessesResult {
  readonly processes: readonly ProcessInfo[];
}

export interface StopParams {
  /** @defaultValue `"drain"` */
  readonly mode?: "drain" | "now";
}

/** US dollars per million tokens, as a decimal number in a string. What is unset is not priced. */
export interface ModelPrice {
  readonly input: string;
  readonly output: string;
  readonly cacheRead?: string;
  readonly cacheWrite?: string;
  /** the day the price was read: 2026-01-31 */
  readonly asOf?: string;
}

/** A model as far as its provider tells; unknown is left out. */
export interface ModelInfo {
  readonly id: string;
  readonly provider: string;
  readonly displayName?: string;
  /** tokens */
  readonly contextWindow?: number;
  readonly description?: string;
  /** seconds since the epoch */
  readonly createdAt?: number;
  /** what it takes; unset when that is not known */
  readonly efforts?: readonly string[];
  readonly price?: ModelPrice;
}

/** Without `workspace`, of all open ones. Answers are kept for some minutes; `refresh` asks again. */
export interface ModelListParams {
  readonly workspace?: AbsolutePath;
  readonly provider?: string;
  /** @defaultValue `false` */
  readonly refresh?: boolean;
}

/** Why a provider's models are missing, or are the ones it last told of. */
export interface ModelListProblem {
  readonly provider: string;
  readonly message: string;
  readonly hint?: string;
}

/** Models of every provider that can be reached, those of one provider together, newest first. */
export interface ModelListResult {
  readonly models: readonly ModelInfo[];
  /**
   * providers that could not be asked
   * @defaultValue `[]`
   */
  readonly degraded?: readonly string[];
  /** @defaultValue `[]` */
  readonly problems?: readonly ModelListProblem[];
}

/** Where the key of one provider's own API, or of one endpoint, comes from. No field holds any part of a key. */
export interface AuthState {
  readonly provider: string;
  /** set for a key that belongs to this endpoint */
  readonly baseUrl?: string;
  readonly source: "store" | "workspace_environment" | "daemon_environment" | "none" | "not_needed" | (string & {});
  /**
   * the source in words: the keyring, OPENAI_API_KEY sent by nvim
   * @defaultValue `""`
   */
  readonly detail?: string;
  /**
   * what else would apply, in order, in words
   * @defaultValue `[]`
   */
  readonly also?: readonly string[];
  /** the environment variable a key may be in */
  readonly variable?: string;
  /** why a stored key can't be used */
  readonly problem?: string;
}

/** Without `workspace`, the environments of all open ones are looked at. */
export interface AuthStatusParams {
  readonly workspace?: AbsolutePath;
}

export interface AuthStatusResult {
  readonly providers: readonly AuthState[];
}

/** Credentials are accepted, never returned. With `base_url` the key belongs to that endpoint and to nobody else. */
export interface AuthSetParams {
  readonly provider: string;
  readonly secret: string;
  readonly baseUrl?: string;
  /** what the endpoint speaks, for trying the key */
  readonly wire?: string;
  /**
   * try the key first; one that is refused is not stored
   * @defaultValue `false`
   */
  readonly verify?: boolean;
  /**
   * keep it in a private file even where there is a keyring
   * @defaultValue `false`
   */
  readonly inFile?: boolean;
}

export interface AuthSetResult {
  readonly state: AuthState;
  /** unset when it was not, or could not be, tried */
  readonly verified?: boolean;
  /** why it could not be tried */
  readonly problem?: string;
}

export interface AuthForgetParams {
  readonly provider: string;
  readonly baseUrl?: string;
}

/** `$/cancelRequest`. */
export interface CancelParams {
  readonly id: number | string;
}

/** The parts of LSP's `initialize` that a basis client needs to send; the rest is LSP's. */
export interface InitializeParams {
  readonly processId?: number;
  /** @defaultValue `{}` */
  readonly capabilities?: Readonly<Record<string, unknown>>;
}

export interface Trust {
  readonly state: "trusted" | "pending" | "none" | (string & {});
  /** files that would run programs and await consent */
  readonly pending: readonly string[];
}

/** A problem in a file the workspace is configured by. Lines and columns start at 1. */
export interface WorkspaceDiagnostic {
  readonly file: AbsolutePath;
  /** @defaultValue `1` */
  readonly line?: number;
  /** @defaultValue `1` */
  readonly column?: number;
  readonly kind: string;
  readonly message: string;
}

export interface WorkspaceCounts {
  readonly sessions: number;
  readonly liveSessions: number;
  readonly clients: number;
}

export interface WorkspaceInfo {
  /** canonical */
  readonly path: AbsolutePath;
  readonly trust: Trust;
  readonly provider?: string;
  readonly model?: string;
  readonly diagnostics: readonly WorkspaceDiagnostic[];
  readonly counts: WorkspaceCounts;
  /**
   * sentences for the person, e.g. how to connect a model
   * @defaultValue `[]`
   */
  readonly notices?: readonly string[];
}

/** `env` is the client's environment snapshot: commands run with it and credentials are looked up in it. */
export interface WorkspaceOpenParams {
  readonly path: AbsolutePath;
  readonly env?: Readonly<Record<string, string>>;
  /** @defaultValue `[]` */
  readonly additionalDirectories?: readonly AbsolutePath[];
}

export interface WorkspacePathParams {
  readonly path: AbsolutePath;
}

export interface WorkspaceListResult {
  readonly workspaces: readonly WorkspaceInfo[];
}

export interface Setting {
  readonly value: string;
  readonly path: AbsolutePath;
  readonly scope: string;
}

export interface ContextDocument {
  readonly path: AbsolutePath;
  readonly scope: string;
  readonly bytes: number;
}

/** Everything discovered, and from which file. */
export interface WorkspaceDescription {
  readonly info: WorkspaceInfo;
  /** @defaultValue `[]` */
  readonly context?: readonly ContextDocument[];
  /** @defaultValue `{}` */
  readonly config?: Readonly<Record<string, Setting>>;
  /** @defaultValue `[]` */
  readonly configFiles?: readonly ContextFile[];
  /** @defaultValue `[]` */
  readonly memories?: readonly unknown[];
  /** @defaultValue `[]` */
  readonly skills?: readonly unknown[];
  /** @defaultValue `[]` */
  readonly templates?: readonly TemplateSummary[];
  /** @defaultValue `[]` */
  readonly hooks?: readonly unknown[];
  /** @defaultValue `[]` */
  readonly declaredTools?: readonly unknown[];
  /** @defaultValue `[]` */
  readonly mcpServers?: readonly string[];
  /**
   * names the model is offered
   * @defaultValue `[]`
   */
  readonly tools?: readonly string[];
}

export interface FingerprintResult {
  readonly hex?: string;
  readonly files?: number;
  readonly unknown?: string;
}

export interface TrustParams {
  readonly path: AbsolutePath;
  /** @defaultValue `[]` */
  readonly digests?: readonly string[];
  /** @defaultValue `false` */
  readonly revoke?: boolean;
}

export interface TemplateListParams {
  readonly workspace: AbsolutePath;
}

export interface TemplateListResult {
  readonly templates: readonly TemplateSummary[];
}

export interface FileSearchParams {
  readonly workspace: AbsolutePath;
  readonly query: string;
  /**
   * at least 1, at most 1000
   * @defaultValue `50`
   */
  readonly limit?: number;
}

export interface FileSearchResult {
  readonly paths: readonly string[];
}

export interface McpListParams {
  readonly workspace?: AbsolutePath;
}

export interface McpServerInfo {
  readonly name: string;
  readonly workspace: AbsolutePath;
  readonly state: "connected" | "connecting" | "failed" | "needs_auth" | (string & {});
  /** @defaultValue `0` */
  readonly tools?: number;
  readonly error?: string;
}

export interface McpListResult {
  readonly servers: readonly McpServerInfo[];
}

export interface McpRestartParams {
  readonly workspace: AbsolutePath;
  readonly name: string;
}

export interface MemoryParams {
  readonly workspace: AbsolutePath;
  readonly name?: string;
}

export interface MemoryEntry {
  readonly name: string;
  readonly description: string;
  readonly type: "user" | "feedback" | "project" | "reference" | (string & {});
  readonly path: AbsolutePath;
  readonly scope: string;
}

export interface MemoryListResult {
  readonly memories: readonly MemoryEntry[];
}

export interface MemoryReadResult {
  readonly text: string;
}

export interface Rule {
  readonly toolName: string;
  readonly pattern?: string;
  readonly allow: boolean;
  readonly scope: "process" | "session" | "project" | "global" | (string & {});
  readonly reason?: string;
}

export interface RuleListParams {
  readonly workspace?: AbsolutePath;
  readonly sessionId?: SessionId;
}

/** In the order in which they are asked: scope by scope, patterns before bare tools. */
export interface RuleListResult {
  readonly rules: readonly Rule[];
  /** where all but `process` rules are kept */
  readonly file?: AbsolutePath;
}

export interface RuleRemoveParams {
  readonly rule: Rule;
  readonly workspace?: AbsolutePath;
  readonly sessionId?: SessionId;
}

/** What would become of this call in a session, or in a new one of a workspace. Nobody is asked, nothing runs. */
export interface RuleExplainParams {
  readonly tool: string;
  readonly input: unknown;
  readonly workspace?: AbsolutePath;
  readonly sessionId?: SessionId;
}

/** A rule for the same tool that does not decide. */
export interface RuleRunnerUp {
  readonly rule: Rule;
  /** why it does not, for a person */
  readonly why: string;
}

/** `prompt`: a person would be asked. `file` is where the rule is kept, or what can't be read (`rules_file`). */
export interface RuleExplainResult {
  readonly outcome: "allow" | "deny" | "prompt" | (string & {});
  readonly decidedBy: "tool" | "authorizer" | "mode" | "rule" | "rules_file" | "person" | (string & {});
  /** one sentence for a person */
  readonly why: string;
  readonly rule?: Rule;
  readonly file?: AbsolutePath;
  /** @defaultValue `[]` */
  readonly runnersUp?: readonly RuleRunnerUp[];
  /**
   * commands of the line that no rule covers
   * @defaultValue `[]`
   */
  readonly uncovered?: readonly string[];
}

export interface ConfigChoice {
  readonly value: string;
  readonly label: string;
}

/** One thing about a session a person may set. */
export interface ConfigOption {
  readonly option: string;
  readonly category: "mode" | "model" | "effort" | (string & {});
  readonly label: string;
  readonly value: string;
  readonly choices: readonly ConfigChoice[];
}

export interface SessionInfo {
  readonly sessionId: SessionId;
  readonly workspace: AbsolutePath;
  readonly title: string;
  readonly state: SessionState;
  readonly createdAt: Timestamp;
  readonly updatedAt: Timestamp;
  readonly turns: number;
  readonly messages: number;
  readonly provider?: string;
  readonly model?: string;
  readonly config: readonly ConfigOption[];
  readonly usage: Usage;
  readonly pendingAsks: number;
  readonly parent?: SessionId;
  /** @defaultValue `false` */
  readonly ephemeral?: boolean;
}

/**
 * Nothing is written before the first prompt. `session_id` may be chosen by the client: 1 to 128 of
 * `[A-Za-z0-9._-]`, not starting with a dot or `x-`.
 */
export interface SessionNewParams {
  readonly workspace: AbsolutePath;
  readonly sessionId?: SessionId;
  readonly title?: string;
  /** @defaultValue `{}` */
  readonly config?: Readonly<Record<string, string>>;
  /** @defaultValue `[]` */
  readonly mcpServers?: readonly unknown[];
  /** @defaultValue `false` */
  readonly ephemeral?: boolean;
}

export interface SessionListParams {
  readonly workspace?: AbsolutePath;
  readonly query?: string;
  readonly cursor?: string;
  /**
   * at least 1, at most 500
   * @defaultValue `50`
   */
  readonly limit?: number;
}

/** Most recently used first. */
export interface SessionListResult {
  readonly sessions: readonly SessionInfo[];
  readonly nextCursor?: string;
}

export interface SessionIdParams {
  readonly sessionId: SessionId;
}

/** With `after_seq`, every later event follows exactly once. Without it, a snapshot stands for the past. */
export interface SessionAttachParams {
  readonly sessionId: SessionId;
  readonly afterSeq?: Seq;
}

/** One entry of the conversation, oldest first. `kind` decides which fields are set. */
export interface HistoryItem {
  readonly entryId: EntryId;
  readonly kind: "user" | "assistant" | "tool" | "context" | "delegation" | "summary" | (string & {});
  /** @defaultValue `""` */
  readonly text?: string;
  readonly reasoning?: string;
  readonly turnId?: TurnId;
  readonly messageId?: MessageId;
  readonly toolCallId?: ToolCallId;
  readonly toolName?: string;
  readonly summary?: string;
  readonly input?: unknown;
  /** @defaultValue `false` */
  readonly isError?: boolean;
  readonly resultId?: ResultId;
  /** @defaultValue `[]` */
  readonly diff?: readonly FileDiff[];
  /** @defaultValue `0` */
  readonly imageCount?: number;
  readonly at?: Timestamp;
  /** who said it, of a `user` entry */
  readonly by?: Actor;
}

/** Text of the assistant message that is being streamed right now. */
export interface PartialMessage {
  readonly messageId: MessageId;
  /** @defaultValue `""` */
  readonly text?: string;
  /** @defaultValue `""` */
  readonly reasoning?: string;
}

/** The conversation up to the attach's `seq`. With `reset`, whatever the client had painted is void. */
export interface SessionSnapshot {
  readonly items: readonly HistoryItem[];
  /** basis/session/history pages back from here */
  readonly previousCursor?: string;
  readonly partial?: PartialMessage;
  /** @defaultValue `false` */
  readonly reset?: boolean;
}

export interface TurnInfo {
  readonly turnId: TurnId;
  readonly state: "running" | "queued" | "interrupted" | (string & {});
  readonly startedAt?: Timestamp;
  readonly by?: Actor;
}

export interface SessionAttachResult {
  readonly info: SessionInfo;
  readonly seq: Seq;
  readonly snapshot?: SessionSnapshot;
  readonly turn?: TurnInfo;
  /** @defaultValue `[]` */
  readonly queued?: readonly TurnInfo[];
  readonly asks: readonly Ask[];
  /** @defaultValue `[]` */
  readonly clients?: readonly Actor[];
}

/** Without `text`, reads the draft; with it, replaces it (empty clears). */
export interface SessionDraftParams {
  readonly sessionId: SessionId;
  readonly text?: string;
}

export interface SessionDraftResult {
  readonly text: string;
  readonly by?: Actor;
  readonly at?: Timestamp;
}

export interface SessionUndoParams {
  readonly sessionId: SessionId;
  readonly toTurn: TurnId;
  /** @defaultValue `false` */
  readonly preview?: boolean;
}

export interface UndoFile {
  readonly path: string;
  readonly change: "restored" | "removed" | "recreated" | (string & {});
  readonly conflict?: string;
}

export interface SessionUndoResult {
  readonly files: readonly UndoFile[];
  readonly cannotUndo: readonly string[];
}

export interface SessionRenameParams {
  readonly sessionId: SessionId;
  /** not empty, no longer than 500 */
  readonly title: string;
}

export interface SessionForkParams {
  readonly sessionId: SessionId;
  readonly atEntry?: EntryId;
}

export interface SessionExportResult {
  readonly jsonl: string;
}

/** Pages in both directions. No cursor starts at the newest end (`before`) or the oldest (`after`). */
export interface SessionHistoryParams {
  readonly sessionId: SessionId;
  readonly cursor?: string;
  /** @defaultValue `"before"` */
  readonly direction?: "before" | "after";
  /**
   * at least 1, at most 1000
   * @defaultValue `100`
   */
  readonly limit?: number;
}

/** Items are oldest first whatever the direction. */
export interface SessionHistoryResult {
  readonly items: readonly HistoryItem[];
  readonly beforeCursor?: string;
  readonly afterCursor?: string;
}

export interface SessionSetConfigParams {
  readonly sessionId: SessionId;
  readonly option: string;
  readonly value: string;
}

/** Limits of one turn. A tripped bound is named in `stoppedBy`. */
export interface Bounds {
  /** more than 0 */
  readonly deadlineMs?: number;
  /** at least 0 */
  readonly toolBudget?: number;
  /** more than 0 */
  readonly tokenBudget?: number;
}

/** Ask for a typed answer of this JSON Schema instead of prose. */
export interface OutputRequest {
  readonly name: string;
  readonly description: string;
  readonly schema: Readonly<Record<string, unknown>>;
  /** @defaultValue `false` */
  readonly keepsTools?: boolean;
}

/** What happens to an ask nobody is there to answer: `wait`, or `deny` with this reason. */
export interface Unattended {
  /** @defaultValue `"wait"` */
  readonly policy?: "wait" | "deny";
  readonly reason?: string;
}

export interface SessionPromptParams {
  readonly sessionId: SessionId;
  /** not empty */
  readonly input: readonly InputBlock[];
  readonly bounds?: Bounds;
  readonly output?: OutputRequest;
  /** @defaultValue `"queue"` */
  readonly whenBusy?: "reject" | "queue" | "steer";
  readonly unattended?: Unattended;
}

/** Acceptance only. The end of the turn is the event `run_finished`. */
export interface SessionPromptResult {
  readonly turnId: TurnId;
  readonly state: "running" | "queued" | "steering" | (string & {});
}

export interface TurnParams {
  readonly sessionId: SessionId;
  readonly turnId?: TurnId;
}

export interface TurnWaitParams {
  readonly sessionId: SessionId;
  readonly turnId: TurnId;
  /** at least 0 */
  readonly timeoutMs?: number;
}

/**
 * How a turn ended: the result of `basis/turn/wait`. When its `timeoutMs` is up first the answer is an error of
 * kind `timeout`; wait again. An interrupted turn is answered at once with `interrupted`; it may be resumed.
 */
export interface TurnOutcome {
  readonly status: TurnStatus;
  readonly stoppedBy?: StoppedBy;
  readonly finalMessage?: string;
  readonly output?: unknown;
  readonly usage: Usage;
  readonly error?: string;
}

export interface TurnSteerParams {
  readonly sessionId: SessionId;
  readonly expectedTurnId: TurnId;
  /** not empty */
  readonly input: readonly InputBlock[];
}

export interface TurnResumeResult {
  readonly turnId: TurnId;
}

export interface TaskListParams {
  readonly sessionId?: SessionId;
}

export interface TaskInfo {
  readonly taskId: string;
  readonly sessionId: SessionId;
  readonly kind: string;
  readonly status: string;
  readonly title: string;
}

export interface TaskListResult {
  readonly tasks: readonly TaskInfo[];
}

export interface TaskIdParams {
  readonly taskId: string;
}

export interface TaskOutputResult {
  readonly text: string;
}

/** Offsets and limits count bytes of UTF-8; pages are cut at character boundaries. */
export interface ToolResultParams {
  readonly resultId: ResultId;
  /**
   * at least 0
   * @defaultValue `0`
   */
  readonly offset?: number;
  /**
   * at least 1, at most 1048576
   * @defaultValue `65536`
   */
  readonly limit?: number;
}

export interface ToolResultPage {
  readonly text: string;
  readonly nextOffset?: number;
  readonly totalBytes: number;
}

/** `error.data` of every error the daemon answers with. */
export interface ErrorData {
  /** stable word, one per cause: no_such_session, busy, stale_turn, … */
  readonly kind: string;
  readonly message: string;
  /** what to do about it */
  readonly hint?: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** What a client may ask: method, params, result. */
export interface Requests {
  /** Version, uptime, counts, memory, places. */
  "basis/daemon/status": { params: Empty; result: DaemonStatusResult };
  /** Answered at once, never behind a turn. */
  "basis/daemon/ping": { params: Empty; result: PingResult };
  /** What is live now, and every change to it. */
  "basis/daemon/subscribe": { params: Empty; result: DaemonSnapshot };
  /** Every child process and why. */
  "basis/daemon/processes": { params: ProcessesParams; result: ProcessesResult };
  /** End the daemon; drain waits for round boundaries. */
  "basis/daemon/stop": { params: StopParams; result: Empty };
  /** Hand the listening socket to a new process. */
  "basis/daemon/restart": { params: StopParams; result: Empty };
  /** Open a directory. */
  "basis/workspace/open": { params: WorkspaceOpenParams; result: WorkspaceInfo };
  /** Open workspaces. */
  "basis/workspace/list": { params: Empty; result: WorkspaceListResult };
  /** Let go of a workspace. */
  "basis/workspace/close": { params: WorkspacePathParams; result: Empty };
  /** Read its files again. */
  "basis/workspace/reload": { params: WorkspacePathParams; result: WorkspaceInfo };
  /** Everything discovered, and from which file. */
  "basis/workspace/describe": { params: WorkspacePathParams; result: WorkspaceDescription };
  /** A digest of the visible content. */
  "basis/workspace/fingerprint": { params: WorkspacePathParams; result: FingerprintResult };
  /** Grant or take back trust by digest. */
  "basis/workspace/trust": { params: TrustParams; result: Trust };
  /** A conversation; nothing written yet. */
  "basis/session/new": { params: SessionNewParams; result: SessionInfo };
  /** Most recently used first. */
  "basis/session/list": { params: SessionListParams; result: SessionListResult };
  /** Watch a session; missed events follow exactly once, in order. */
  "basis/session/attach": { params: SessionAttachParams; result: SessionAttachResult };
  /** Stop watching. */
  "basis/session/detach": { params: SessionIdParams; result: Empty };
  /** The shared unsent prompt. */
  "basis/session/draft": { params: SessionDraftParams; result: SessionDraftResult };
  /** Take file changes back. */
  "basis/session/undo": { params: SessionUndoParams; result: SessionUndoResult };
  /** Unload a session; it stays resumable. */
  "basis/session/close": { params: SessionIdParams; result: Empty };
  /** Give it another title. */
  "basis/session/rename": { params: SessionRenameParams; result: SessionInfo };
  /** Remove it for good; absent is fine. */
  "basis/session/delete": { params: SessionIdParams; result: Empty };
  /** Copy it up to an entry. */
  "basis/session/fork": { params: SessionForkParams; result: SessionInfo };
  /** Shorten the transcript now. */
  "basis/session/compact": { params: SessionIdParams; result: Empty };
  /** The whole record. */
  "basis/session/export": { params: SessionIdParams; result: SessionExportResult };
  /** Page through the conversation in both directions. */
  "basis/session/history": { params: SessionHistoryParams; result: SessionHistoryResult };
  /** Set one of its options. */
  "basis/session/setConfig": { params: SessionSetConfigParams; result: SessionInfo };
  /** Accepted at once. */
  "basis/session/prompt": { params: SessionPromptParams; result: SessionPromptResult };
  /** How a turn ended; repeatable. */
  "basis/turn/wait": { params: TurnWaitParams; result: TurnOutcome };
  /** Add input to a running turn. */
  "basis/turn/steer": { params: TurnSteerParams; result: SessionPromptResult };
  /** Carry an interrupted turn on. */
  "basis/turn/resume": { params: SessionIdParams; result: TurnResumeResult };
  /** Abandon a turn and roll it back. */
  "basis/turn/cancel": { params: TurnParams; result: Empty };
  /** End it at the next round boundary, keep the work. */
  "basis/turn/stop": { params: TurnParams; result: Empty };
  /** Every pending ask. */
  "basis/ask/list": { params: AskListParams; result: AskListResult };
  /** First answer wins. */
  "basis/ask/answer": { params: AskAnswerParams; result: AskAnswerResult };
  /** Models of all providers. */
  "basis/model/list": { params: ModelListParams; result: ModelListResult };
  /** Where each credential comes from. */
  "basis/auth/status": { params: AuthStatusParams; result: AuthStatusResult };
  /** Store a credential. */
  "basis/auth/set": { params: AuthSetParams; result: AuthSetResult };
  /** Remove a stored credential. */
  "basis/auth/forget": { params: AuthForgetParams; result: Empty };
  /** MCP servers and their state. */
  "basis/mcp/list": { params: McpListParams; result: McpListResult };
  /** Connect one again. */
  "basis/mcp/restart": { params: McpRestartParams; result: Empty };
  /** Background tasks and subagents. */
  "basis/task/list": { params: TaskListParams; result: TaskListResult };
  /** What a task printed. */
  "basis/task/output": { params: TaskIdParams; result: TaskOutputResult };
  /** End a task. */
  "basis/task/kill": { params: TaskIdParams; result: Empty };
  /** Memory files in force. */
  "basis/memory/list": { params: MemoryParams; result: MemoryListResult };
  /** One memory's text. */
  "basis/memory/read": { params: MemoryParams; result: MemoryReadResult };
  /** Remove a memory. */
  "basis/memory/forget": { params: MemoryParams; result: Empty };
  /** Remembered answers. */
  "basis/rule/list": { params: RuleListParams; result: RuleListResult };
  /** Forget one. */
  "basis/rule/remove": { params: RuleRemoveParams; result: Empty };
  /** Which rule would decide. */
  "basis/rule/explain": { params: RuleExplainParams; result: RuleExplainResult };
  /** For `/` commands. */
  "basis/template/list": { params: TemplateListParams; result: TemplateListResult };
  /** For `@` mentions. */
  "basis/file/search": { params: FileSearchParams; result: FileSearchResult };
  /** Page a large tool result. */
  "basis/tool/result": { params: ToolResultParams; result: ToolResultPage };
}

/** What the daemon tells by itself: method, params. */
export interface Notifications {
  /** One numbered event of an attached session. */
  "basis/session/event": { params: SessionEvent };
  /** Too far behind: attach again after `seq`. */
  "basis/session/lagged": { params: SessionLagged };
  /** A change to what `daemon/subscribe` showed. */
  "basis/daemon/event": { params: DaemonEvent };
}

/** Event types this file knows; skip the others. */
export const EVENT_TYPES: readonly AnyEvent["type"][] = [
  "run_started",
  "user_message",
  "assistant_delta",
  "assistant_reasoning_delta",
  "assistant_message",
  "tool_queued",
  "tool_started",
  "tool_progress",
  "tool_completed",
  "permission_requested",
  "permission_resolved",
  "task_updated",
  "compaction_started",
  "compaction_completed",
  "request_tool_results_elided",
  "memory_updated",
  "usage",
  "notice",
  "retry",
  "error",
  "branched",
  "run_finished",
  "turn_queued",
  "ask_opened",
  "ask_closed",
  "config_changed",
  "info_changed",
  "client_attached",
  "client_detached",
  "lease_conflict",
];

export const ErrorCode = {
  PARSE_ERROR: -32700,
  INVALID_REQUEST: -32600,
  METHOD_NOT_FOUND: -32601,
  INVALID_PARAMS: -32602,
  INTERNAL_ERROR: -32603,
  SERVER_NOT_INITIALIZED: -32002,
  OVERLOADED: -32001,
  AUTH_REQUIRED: -32000,
  REQUEST_CANCELLED: -32800,
  REQUEST_FAILED: -32803,
} as const;
