--- What waits for a person: every pending question, the one that is shown, and the answers given here.
---
--- Owns the inbox and that nobody answers a question they have not seen. How a question looks is `ask_window.lua`'s.

local client = require("basis.client")
local config = require("basis.config")
local methods = require("basis.protocol_gen").methods
local say = require("basis.say")

local uv = vim.uv

local M = {}

--- A key that was on its way when the question on the screen changed is no answer to the new one.
local UNSEEN_MS = 300

---@type table<string, basis.Ask>
local pending = {}
--- Sessions this editor shows; only their questions come up by themselves.
---@type table<string, true>
local shown_sessions = {}
---@type table<string, true>
local hidden = {}
---@type string? id of the question on the screen
local shown
local shown_since = 0
---@type number?
local command_line_since
local is_scheduled = false
---@type fun()[]
local listeners = {}

--- Call `listener` whenever the inbox has changed.
---@param listener fun()
function M.on_change(listener)
  listeners[#listeners + 1] = listener
end

--- Everything that waits, oldest first.
---@param workspace? string only of this one
---@return basis.Ask[]
function M.list(workspace)
  local asks = {}
  for _, ask in pairs(pending) do
    if not workspace or ask.workspace == workspace then
      asks[#asks + 1] = ask
    end
  end
  table.sort(asks, function(one, other)
    return one.createdAt == other.createdAt and one.askId < other.askId or one.createdAt < other.createdAt
  end)
  return asks
end

--- The question on the screen.
---@return basis.Ask?
function M.shown()
  return shown and pending[shown]
end

local function changed()
  for _, listener in ipairs(listeners) do
    listener()
  end
  if not is_scheduled then
    is_scheduled = true
    -- A replay opens and closes questions in one go; only what is left is shown.
    vim.defer_fn(function()
      is_scheduled = false
      M.refresh()
    end, 20)
  end
end

---@param ask basis.Ask
---@param is_entered? boolean
local function show(ask, is_entered)
  local of_these = vim.tbl_filter(function(each)
    return shown_sessions[each.sessionId]
  end, M.list())
  if shown ~= ask.askId then
    shown, shown_since = ask.askId, uv.now()
  end
  require("basis.ask_window").open(ask, { count = #of_these, is_entered = is_entered or false })
end

--- Show the oldest question of the sessions on the screen, without taking the cursor.
function M.refresh()
  M.watch_editor()
  local window = require("basis.ask_window")
  if shown and pending[shown] and window.is_open() then
    return
  end
  shown = nil
  window.close()
  if vim.fn.getcmdwintype() ~= "" then
    -- Windows can't be opened from here; the next change, or leaving it, comes back.
    return
  end
  for _, ask in ipairs(M.list()) do
    if shown_sessions[ask.sessionId] and not hidden[ask.askId] then
      return show(ask)
    end
  end
end

--- Open a question and go into its window: somebody wants to look at it.
---@param ask basis.Ask
function M.enter(ask)
  hidden[ask.askId] = nil
  show(ask, true)
end

--- Put the question on the screen away; it waits in the inbox.
function M.hide()
  if shown then
    hidden[shown] = true
  end
  M.refresh()
end

-- --- news -------------------------------------------------------------------------------------------------------------

---@param ask basis.Ask
local function add(ask)
  local is_new = not pending[ask.askId]
  pending[ask.askId] = ask
  if is_new then
    say.event("AskOpened", { ask = ask.askId, session = ask.sessionId, title = ask.title })
  end
  return is_new
end

---@param id string
---@return basis.Ask?
local function remove(id)
  local ask = pending[id]
  pending[id], hidden[id] = nil, nil
  if ask then
    say.event("AskClosed", { ask = id, session = ask.sessionId })
  end
  return ask
end

---@param ask basis.Ask
function M.opened(ask)
  if add(ask) and config.get().notify then
    say.info("waiting for you: " .. ask.title)
  end
  changed()
end

--- A question was answered, here or elsewhere.
---@param event basis.AskClosed
function M.closed(event)
  local was_shown = shown == event.askId
  local ask = remove(event.askId)
  if ask and event.by.clientId ~= require("basis.hello").client_id() then
    local words = event.decision == "allow" and "allowed" or "denied"
    local text = ("answered by %s: %s"):format(event.by.client, words)
    if was_shown then
      require("basis.ask_window").farewell(text)
      shown = nil
    end
    say.info(("%s, %s"):format(ask.title, text))
  end
  changed()
end

--- What waits in a session that was just attached. A replay tells what became of the others; a snapshot does not.
---@param session_id string
---@param asks basis.Ask[]
---@param is_complete boolean
function M.attached(session_id, asks, is_complete)
  shown_sessions[session_id] = true
  local current = {}
  for _, ask in ipairs(asks) do
    current[ask.askId] = true
    add(ask)
  end
  if is_complete then
    for id, ask in pairs(pending) do
      if ask.sessionId == session_id and not current[id] then
        remove(id)
      end
    end
  end
  changed()
end

--- A session is no longer on the screen: its questions stay in the inbox.
---@param session_id string
function M.detached(session_id)
  shown_sessions[session_id] = nil
  if shown and pending[shown] and pending[shown].sessionId == session_id then
    shown = nil
    require("basis.ask_window").close()
  end
  changed()
end

--- What waits everywhere, as the subscription begins.
---@param asks basis.Ask[]
function M.replace_all(asks)
  local current = {}
  for _, ask in ipairs(asks) do
    current[ask.askId] = true
    add(ask)
  end
  for id, ask in pairs(pending) do
    -- Those of attached sessions are told by their events, with who answered.
    if not current[id] and not shown_sessions[ask.sessionId] then
      remove(id)
    end
  end
  changed()
end

---@param event basis.DaemonEvent
---@param attached table<string, any> sessions whose own events tell more
function M.take_daemon_event(event, attached)
  if event.kind == "ask_opened" and event.ask and not attached[event.ask.sessionId] then
    M.opened(event.ask)
  elseif event.kind == "ask_closed" and event.askId then
    local ask = pending[event.askId]
    if ask and not attached[ask.sessionId] then
      remove(event.askId)
      changed()
    end
  end
end

-- --- answers ----------------------------------------------------------------------------------------------------------

---@param ask basis.Ask
---@return string? why it can't be answered just now
local function refusal(ask)
  if client.state ~= "connected" then
    return "there is no connection; the question waits"
  elseif uv.now() - shown_since < UNSEEN_MS or (command_line_since and command_line_since < shown_since) then
    return ask.askId == shown and "this question has only just appeared; look at it first" or nil
  end
end

---@param ask basis.Ask
---@param decision basis.Decision
---@param options? { scope?: basis.Scope, reason?: string }
function M.answer(ask, decision, options)
  options = options or {}
  local fault = refusal(ask)
  if fault then
    return say.warn(fault)
  end
  local params = { askId = ask.askId, decision = decision, scope = options.scope, reason = options.reason }
  client.request(methods.ask_answer, params, function(err)
    if not err then
      remove(ask.askId)
      return changed()
    end
    local kind = err.data and err.data.kind
    if kind == "ask_decided" or kind == "no_such_ask" then
      local details = err.data.details or {}
      remove(ask.askId)
      changed()
      local by = details.by and details.by.client or "somebody"
      return say.info(("already answered by %s"):format(by))
    end
    say.warn(say.words(err))
  end)
end

--- Answer the question on the screen.
---@param decision basis.Decision
---@param options? { scope?: basis.Scope, reason?: string }
function M.answer_shown(decision, options)
  local ask = M.shown()
  if not ask then
    return say.info(#M.list() > 0 and "no question is on the screen; see :Basis inbox" or "nothing waits for you")
  end
  M.answer(ask, decision, options)
end

--- Choose a question that waits and look at it; those of `workspace` come first.
---@param workspace string
function M.choose(workspace)
  local asks = M.list(workspace)
  for _, ask in ipairs(M.list()) do
    if ask.workspace ~= workspace then
      asks[#asks + 1] = ask
    end
  end
  if #asks == 0 then
    return say.info("nothing waits for you")
  end
  vim.ui.select(asks, {
    prompt = "Waiting for you",
    kind = "basis-ask",
    format_item = function(ask)
      local text = ("%s  (%s)"):format(ask.title, vim.fs.basename(ask.workspace))
      return require("basis.plain").one_line(text, 200)
    end,
  }, function(ask)
    if ask and pending[ask.askId] then
      M.enter(ask)
    end
  end)
end

local is_watching = false

--- Keep the question in sight when the tab page or the editor's size changes, from the first question on.
function M.watch_editor()
  if is_watching or next(pending) == nil then
    return
  end
  is_watching = true
  local group = vim.api.nvim_create_augroup("basis.asks", {})
  vim.api.nvim_create_autocmd({ "TabEnter", "VimResized", "CmdwinLeave" }, {
    group = group,
    callback = function()
      require("basis.ask_window").close()
      changed()
    end,
  })
  vim.api.nvim_create_autocmd({ "CmdlineEnter", "CmdlineLeave" }, {
    group = group,
    callback = function(args)
      if args.event == "CmdlineEnter" then
        command_line_since = uv.now()
      else
        -- The command that was typed runs first.
        vim.schedule(function()
          command_line_since = nil
        end)
      end
    end,
  })
end

return M
