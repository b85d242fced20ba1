--- The one connection of this editor, for as long as the editor lives: found, made, lost, made again.
---
--- Owns the back-off and what is put back after a reconnection: the workspaces with this editor's environment, the
--- subscription, then the sessions. What sessions do with their events is `session.lua`'s.

local config = require("basis.config")
local dial = require("basis.dial")
local methods = require("basis.protocol_gen").methods
local rpc = require("basis.rpc")
local say = require("basis.say")

local M = {}

local BACK_OFF_MS = { 50, 100, 250, 500, 1000, 2000 }

---@alias basis.ConnectionState "disconnected"|"connecting"|"connected"

---@type basis.ConnectionState
M.state = "disconnected"
--- What the banner says while there is no connection.
---@type string?
M.reason = nil
--- The daemon spoken to last.
---@type basis.DaemonInfo?
M.daemon = nil

---@type basis.Connection?
local connection
--- Workspaces by the directory they were asked for, with their last answer.
---@type table<string, basis.WorkspaceInfo>
local workspaces = {}
---@type table<string, (fun(err: basis.RpcError?, info: basis.WorkspaceInfo?))[]>
local opening = {}
---@type fun()[]
local when_connected = {}
---@type fun()[]
local listeners = {}
---@type table<string, fun(params: table)>
local on_notification = {}
---@type table<string, basis.Session>
local sessions = {}
--- Attempts are numbered; timers and answers of an older one do nothing.
local newest = 0
---@type basis.Start?
local under_way

--- Call `listener` whenever `state` or `reason` has changed.
---@param listener fun()
function M.on_change(listener)
  listeners[#listeners + 1] = listener
end

--- Give notifications of `method` to `handler`.
---@param method string
---@param handler fun(params: table)
function M.on(method, handler)
  on_notification[method] = handler
end

---@param state basis.ConnectionState
---@param reason? string
local function become(state, reason)
  if state == M.state and reason == M.reason then
    return
  end
  local was = M.state
  M.state, M.reason = state, reason
  say.log(reason and ("%s: %s"):format(state, reason) or state)
  for _, listener in ipairs(listeners) do
    rpc.guard(listener)
  end
  if state == "connected" then
    say.event("Connected", { daemon = M.daemon })
  elseif was == "connected" then
    say.event("Disconnected", { reason = reason })
  end
end

-- --- requests ---------------------------------------------------------------------------------------------------------

--- Send a request. Without a connection it fails with kind `connection_lost`.
---@param method string
---@param params table?
---@param callback? basis.Callback
function M.request(method, params, callback)
  callback = callback or function() end
  if connection and M.state == "connected" then
    connection:request(method, params, callback)
  else
    vim.schedule(function()
      callback(rpc.LOST)
    end)
  end
end

--- Send a request whose answer nobody reads, before this returns: for an editor that is about to end.
---@param method string
---@param params table
function M.send_now(method, params)
  if connection and M.state == "connected" then
    connection:send_now(method, params)
  end
end

---@param link basis.Connection
---@param directory string
---@param callback fun(err: basis.RpcError?, info: basis.WorkspaceInfo?)
local function open_workspace(link, directory, callback)
  local params = { path = directory, env = require("basis.hello").environment() }
  link:request(methods.workspace_open, params, function(err, info)
    if info then
      workspaces[directory] = info
      for _, notice in ipairs(info.notices or {}) do
        say.log(notice)
      end
    end
    callback(err, info)
  end)
end

--- The workspace of `directory`, opened with this editor's environment when it is not open yet.
---@param directory string
---@param callback fun(err: basis.RpcError?, info: basis.WorkspaceInfo?)
function M.workspace(directory, callback)
  if workspaces[directory] then
    return callback(nil, workspaces[directory])
  elseif not connection then
    return callback(rpc.LOST)
  end
  local waiting = opening[directory]
  opening[directory] = vim.list_extend(waiting or {}, { callback })
  if not waiting then
    open_workspace(connection, directory, function(err, info)
      local callbacks = opening[directory]
      opening[directory] = nil
      for _, each in ipairs(callbacks) do
        rpc.guard(each, err, info)
      end
    end)
  end
end

--- The canonical path of `directory`, once that is known.
---@param directory string
---@return string
function M.canonical(directory)
  return workspaces[directory] and workspaces[directory].path or directory
end

--- Attach `session` now and after every reconnection.
---@param session basis.Session
function M.keep(session)
  sessions[session.id] = session
  if M.state == "connected" then
    session:attach()
  end
end

---@param session basis.Session
function M.let_go(session)
  if sessions[session.id] == session then
    sessions[session.id] = nil
    M.request(methods.session_detach, { sessionId = session.id })
  end
end

-- --- connecting -------------------------------------------------------------------------------------------------------

local try

---@param failures integer
---@param reason string
---@param is_quiet boolean whether this only repeats what is known
local function rest(failures, reason, is_quiet)
  become("disconnected", is_quiet and M.reason or reason)
  local mine = newest
  vim.defer_fn(function()
    if mine == newest then
      try("never", failures + 1)
    end
  end, BACK_OFF_MS[math.min(failures, #BACK_OFF_MS)])
end

---@param link basis.Connection?
---@param method string
---@param params table
local function route(link, method, params)
  local handler = link and link == connection and on_notification[method]
  if handler then
    handler(params)
  end
end

--- Put back what there was before the connection was lost, then let everybody go on.
---@param link basis.Connection
local function restore(link)
  local left = vim.tbl_count(workspaces) + 1
  local function done()
    left = left - 1
    if left > 0 or link ~= connection or not link.is_open then
      return
    end
    become("connected")
    for _, session in pairs(sessions) do
      session:attach()
    end
    local callbacks = when_connected
    when_connected = {}
    for _, callback in ipairs(callbacks) do
      rpc.guard(callback)
    end
  end
  for directory in pairs(workspaces) do
    -- A directory that is gone by now concerns whoever works there next, not the connection.
    open_workspace(link, directory, done)
  end
  link:request(methods.daemon_subscribe, nil, function(err, snapshot)
    if snapshot then
      require("basis.asks").replace_all(snapshot.asks)
    elseif link == connection then
      say.log("no subscription: " .. say.words(err))
    end
    done()
  end)
end

---@param link basis.Connection
---@param reason string
local function lost(link, reason)
  if link ~= connection then
    return
  end
  connection = nil
  say.log("lost: " .. reason)
  become("connecting", "connection lost, reconnecting")
  try(config.get().start and "if_died" or "never", 1)
end

---@param start basis.Start
---@param failures integer
function try(start, failures)
  newest = newest + 1
  local mine = newest
  under_way = start
  local link
  local handlers = {
    on_notification = function(method, params)
      route(link, method, params)
    end,
    on_close = function(reason)
      if link then
        lost(link, reason)
      end
    end,
  }
  dial.open(start, handlers, function(opened, result)
    if mine ~= newest then
      return opened and opened:close()
    end
    under_way = nil
    if not opened then
      if start == "always" then
        -- What somebody wanted then must not happen to them at some later time.
        when_connected = {}
        say.error(tostring(result))
      end
      return rest(failures, tostring(result), start == "never" and M.state == "disconnected")
    end
    link, connection, M.daemon = opened, opened, result.daemon
    restore(opened)
  end)
end

--- Connect if there is no connection, starting a daemon if there is none and that is wanted.
function M.connect()
  if M.state == "connected" or connection or under_way == "always" then
    return
  end
  local start = config.get().start and "always" or "never"
  if under_way ~= start then
    become("connecting", "connecting")
    try(start, 1)
  end
end

--- Call `callback` once there is a connection, making one if there is none; never if that fails.
---@param callback fun()
function M.when_connected(callback)
  if M.state == "connected" then
    return callback()
  end
  when_connected[#when_connected + 1] = callback
  M.connect()
end

M.on(methods.session_event, function(params)
  local session = sessions[params.sessionId]
  if session then
    session:take(params)
  end
end)

M.on(methods.session_lagged, function(params)
  local session = sessions[params.sessionId]
  if session then
    say.log("fell too far behind; attaching again")
    session:attach()
  end
end)

M.on(methods.daemon_event, function(params)
  if params.kind == "session_removed" and sessions[params.sessionId] then
    sessions[params.sessionId]:removed()
  end
  require("basis.asks").take_daemon_event(params, sessions)
end)

return M
