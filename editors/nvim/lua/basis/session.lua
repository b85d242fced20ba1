--- One session this editor watches: its cursor, its state, and the prompts sent from here.
---
--- Owns that every event is taken once and in order, and what became of a prompt whose answer was lost with the connection.

local client = require("basis.client")
local methods = require("basis.protocol_gen").methods
local say = require("basis.say")

local M = {}

---@class basis.Listener
---@field on_event fun(event: basis.AnyEvent)
---@field on_reset fun(snapshot: basis.SessionSnapshot)
---@field on_change fun() title, state or connection
---@field on_gone fun(reason: string) the session can't be watched

---@class basis.Sent
---@field text string
---@field is_lost? boolean
---@field before table<string, true> turns that were known when it was sent
---@field callback fun(err: basis.RpcError?)

---@class basis.Session
---@field id string
---@field info? basis.SessionInfo
---@field state basis.SessionState?
---@field earlier? string cursor of the page before what is painted
---@field is_attached boolean
---@field is_removed boolean whether somebody has closed it, so that no event comes any more
---@field private listener basis.Listener
---@field private seq? integer last event taken
---@field private is_attaching boolean
---@field private is_behind boolean
---@field private known_turns table<string, true>
---@field private sent? basis.Sent
local Session = {}
Session.__index = Session

---@param id string
---@param listener basis.Listener
---@return basis.Session
function M.new(id, listener)
  return setmetatable({
    id = id, listener = listener, is_attached = false, is_removed = false, is_attaching = false,
    is_behind = false, known_turns = {},
  }, Session)
end

--- Attach, or attach again after the last event taken.
function Session:attach()
  if self.is_attaching then
    self.is_behind = true
    return
  end
  self.is_attaching, self.is_behind, self.is_attached, self.is_removed = true, false, false, false
  local params = { sessionId = self.id, afterSeq = self.seq }
  client.request(methods.session_attach, params, function(err, result)
    self.is_attaching = false
    if err then
      return self:refused(err)
    end
    self:attached(result)
    if self.is_behind then
      self:attach()
    end
  end)
end

--- Somebody has closed the session, or it was unloaded. It is not loaded again before somebody wants it.
function Session:removed()
  self.is_attached, self.is_removed = false, true
  self.listener.on_change()
end

---@private
---@param err basis.RpcError
function Session:refused(err)
  if err.data and err.data.kind == "connection_lost" then
    return -- the client attaches it again
  end
  self.listener.on_gone(err.data and err.data.kind == "no_such_session" and "no_such_session" or say.words(err))
end

---@private
---@param result basis.SessionAttachResult
function Session:attached(result)
  self.info, self.state, self.seq = result.info, result.info.state, result.seq
  self.is_attached = true
  if result.snapshot then
    self.earlier = result.snapshot.previousCursor
    self.listener.on_reset(result.snapshot)
  end
  require("basis.asks").attached(self.id, result.asks, result.snapshot ~= nil)
  self:settle(result)
  self.listener.on_change()
end

--- Take the params of one `basis/session/event`.
---@param params basis.SessionEvent
function Session:take(params)
  if not self.seq or params.seq <= self.seq or self.is_attaching then
    return
  end
  if params.seq ~= self.seq + 1 then
    say.log(("events %d to %d are missing; asking for them again"):format(self.seq + 1, params.seq - 1))
    return self:attach()
  end
  self.seq = params.seq
  local event = params.event
  self:observe(event)
  self.listener.on_event(event)
end

---@private
---@param event table
function Session:observe(event)
  local kind = event.type
  if event.turnId then
    self.known_turns[event.turnId] = true
  end
  if kind == "info_changed" then
    if self.info then
      self.info.title = event.title or self.info.title
    end
    self.state = event.state or self.state
    self.listener.on_change()
  elseif kind == "ask_opened" then
    require("basis.asks").opened(event.ask)
  elseif kind == "ask_closed" then
    require("basis.asks").closed(event)
  elseif kind == "run_started" then
    say.event("TurnStarted", { session = self.id, turn = event.turnId })
  elseif kind == "run_finished" then
    say.event("TurnEnded", { session = self.id, turn = event.turnId, status = event.status })
  end
end

-- --- prompts ----------------------------------------------------------------------------------------------------------

--- Send a prompt. `callback` gets an error if it was not accepted.
---@param input basis.InputBlock[]
---@param when_busy "steer"|"queue"
---@param callback fun(err: basis.RpcError?)
function Session:prompt(input, when_busy, callback)
  ---@type basis.Sent
  local sent = { text = input[#input].text or "", callback = callback, before = vim.deepcopy(self.known_turns) }
  self.sent = sent
  local params = { sessionId = self.id, input = input, whenBusy = when_busy }
  client.request(methods.session_prompt, params, function(err, result)
    if err and err.data and err.data.kind == "connection_lost" then
      -- Sent twice it would be carried out twice: what became of it shows when the session is attached again.
      sent.is_lost = true
      return
    end
    if self.sent == sent then
      self.sent = nil
    end
    if result then
      self.known_turns[result.turnId] = true
    end
    callback(err)
  end)
end

--- Find out whether the prompt that was under way when the connection was lost has been accepted.
---@private
---@param result basis.SessionAttachResult
function Session:settle(result)
  local sent = self.sent
  if not sent or not sent.is_lost then
    return
  end
  self.sent = nil
  local mine = require("basis.hello").client_id()
  for _, turn in ipairs(vim.list_extend({ result.turn }, result.queued or {})) do
    if turn.by and turn.by.clientId == mine and not sent.before[turn.turnId] then
      return sent.callback(nil)
    end
  end
  client.request(methods.session_history, { sessionId = self.id, limit = 50 }, function(err, page)
    for _, item in ipairs(page and page.items or {}) do
      local is_news = item.turnId and (not sent.before[item.turnId] or item.turnId == (result.turn or {}).turnId)
      if item.kind == "user" and is_news and vim.endswith(vim.trim(item.text or ""), vim.trim(sent.text)) then
        return sent.callback(nil)
      end
    end
    if err and err.data and err.data.kind == "connection_lost" then
      self.sent = sent
      return
    end
    local message = "the connection was lost before the daemon had taken the prompt; it is back in the prompt window"
    sent.callback({ code = 0, message = message, data = { kind = "not_accepted", message = message } })
  end)
end

---@param method string
---@param callback? basis.Callback
---@param params? table
function Session:call(method, callback, params)
  params = vim.tbl_extend("force", { sessionId = self.id }, params or {})
  client.request(method, params, callback or function(err)
    if err then
      say.warn(say.words(err))
    end
  end)
end

return M
