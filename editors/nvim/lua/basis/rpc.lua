--- One connection to the daemon: requests, answers, notifications.
---
--- Owns the socket. Knows JSON-RPC, not what is said over it. Everything it calls back runs on the main loop, in the order
--- in which it came, a few milliseconds at a time so that keys are read in between. Every request is called back: with its
--- answer, or with `LOST` when the connection ends first.

local framing = require("basis.framing")

local uv = vim.uv

local M = {}

---@class basis.RpcError
---@field code integer
---@field message string
---@field data? basis.ErrorData

---@alias basis.Callback fun(err: basis.RpcError?, result: any)

--- The connection ended before the answer came: whether the request took effect is not known.
M.LOST = { code = 0, message = "the connection to the daemon was lost", data = { kind = "connection_lost", message = "the connection to the daemon was lost" } }

--- Milliseconds of work at a time, and bodies that may wait before the socket is left alone.
local SLICE_MS, MAX_WAITING = 6, 4000

---@class basis.Handlers
---@field on_notification fun(method: string, params: table)
---@field on_close fun(reason: string)

---@class basis.Connection
---@field is_open boolean
---@field private pipe uv.uv_pipe_t
---@field private handlers basis.Handlers
---@field private decoder basis.Decoder
---@field private callbacks table<integer, basis.Callback>
---@field private last_id integer
---@field private waiting string[]
---@field private first integer index of the oldest body in `waiting`
---@field private is_paused boolean
---@field private is_draining boolean
---@field private ended? string why the stream is over, once it is
local Connection = {}
Connection.__index = Connection

--- Connect to the socket at `path`. `callback` gets the connection, or why there is none (an errno name such as ENOENT).
---@param path string
---@param handlers basis.Handlers
---@param callback fun(connection: basis.Connection?, fault: string?)
function M.connect(path, handlers, callback)
  local pipe = assert(uv.new_pipe(false))
  local function connected(err)
    vim.schedule(function()
      if err then
        pipe:close()
        return callback(nil, (err:match("^%u[%u%d]*")))
      end
      local self = setmetatable({
        is_open = true,
        pipe = pipe,
        handlers = handlers,
        decoder = framing.decoder(),
        callbacks = {},
        last_id = 0,
        waiting = {},
        first = 1,
        is_paused = false,
        is_draining = false,
      }, Connection)
      self:listen()
      callback(self)
    end)
  end
  local ok, fault = pcall(pipe.connect, pipe, path, connected)
  if not ok then
    connected(tostring(fault))
  end
end

---@param message table
---@return string
local function frame(message)
  return framing.encode(require("basis.plain").valid_utf8(vim.json.encode(message)))
end

--- Send a request. Returns its id, for `cancel`.
---@param method string
---@param params table?
---@param callback basis.Callback
---@return integer? id
function Connection:request(method, params, callback)
  if not self.is_open then
    vim.schedule(function()
      callback(M.LOST)
    end)
    return
  end
  self.last_id = self.last_id + 1
  self.callbacks[self.last_id] = callback
  self:send({ jsonrpc = "2.0", id = self.last_id, method = method, params = params or vim.empty_dict() })
  return self.last_id
end

---@param method string
---@param params table?
function Connection:notify(method, params)
  if self.is_open then
    self:send({ jsonrpc = "2.0", method = method, params = params or vim.empty_dict() })
  end
end

--- Send a request whose answer nobody will be there to read, before this returns. For an editor that is about to end.
---@param method string
---@param params table
function Connection:send_now(method, params)
  if self.is_open then
    self.last_id = self.last_id + 1
    -- What does not fit is left out: the daemon drops half a message with the connection.
    self.pipe:try_write(frame({ jsonrpc = "2.0", id = self.last_id, method = method, params = params }))
  end
end

--- End the connection. Requests in flight are called back with `LOST`; `on_close` is not called.
function Connection:close()
  self.handlers = { on_notification = function() end, on_close = function() end }
  self:shut("closed")
end

---@private
function Connection:send(message)
  self.pipe:write(frame(message), function(err)
    if err then
      self:over(err)
    end
  end)
end

---@private
function Connection:listen()
  self.is_paused = false
  self.pipe:read_start(function(err, data)
    if err or not data then
      return self:over(err or "the daemon closed the connection")
    end
    local bodies, fault = self.decoder:feed(data)
    vim.list_extend(self.waiting, bodies)
    if fault then
      self:over(fault)
    elseif #bodies > 0 then
      if #self.waiting - self.first > MAX_WAITING then
        -- The daemon merges what waits, and tells this client to attach again if that is not enough.
        self.pipe:read_stop()
        self.is_paused = true
      end
      self:drain_soon()
    end
  end)
end

--- The stream is over; what it brought is still taken first.
---@private
function Connection:over(reason)
  if not self.ended then
    self.ended = reason
    if not self.pipe:is_closing() then
      self.pipe:close()
    end
    self:drain_soon()
  end
end

---@private
function Connection:drain_soon()
  if not self.is_draining then
    self.is_draining = true
    vim.schedule(function()
      self:drain()
    end)
  end
end

---@private
function Connection:drain()
  local deadline = uv.hrtime() + SLICE_MS * 1e6
  while self.is_open and self.first <= #self.waiting and uv.hrtime() < deadline do
    local body = self.waiting[self.first]
    self.waiting[self.first] = false
    self.first = self.first + 1
    self:take(body)
  end
  if self.is_open and self.first <= #self.waiting then
    -- A timer, not `vim.schedule`: scheduled work is done to its end before the next key is looked at.
    return vim.defer_fn(function()
      self:drain()
    end, 1)
  end
  self.waiting, self.first, self.is_draining = {}, 1, false
  if self.ended then
    self:shut(self.ended)
  elseif self.is_open and self.is_paused then
    self:listen()
  end
end

---@private
function Connection:shut(reason)
  if not self.is_open then
    return
  end
  self.is_open = false
  if not self.pipe:is_closing() then
    self.pipe:close()
  end
  local callbacks = self.callbacks
  self.callbacks = {}
  for _, callback in vim.spairs(callbacks) do
    M.guard(callback, M.LOST)
  end
  M.guard(self.handlers.on_close, reason)
end

--- Call `fn`; what it raises is logged. One message that can't be shown must not end the connection.
---@param fn function
function M.guard(fn, ...)
  local ok, fault = xpcall(fn, debug.traceback, ...)
  if not ok then
    require("basis.say").error("internal error, see :Basis log")
    require("basis.say").log(tostring(fault))
  end
end

---@param body string
---@return table
local function decode(body)
  local ok, message = pcall(vim.json.decode, body, { luanil = { object = true, array = true } })
  if ok and type(message) == "table" then
    return message
  end
  require("basis.say").log("a message could not be read: " .. tostring(message))
  -- An event that can't be read (nested too deeply, say) still has its number: without it the stream would have a hole.
  local session, seq = body:match('"sessionId":"([%w._-]+)","seq":(%d+)')
  if body:find('"method":"basis/session/event"', 1, true) and seq then
    local event = { type = "notice", severity = "warning", message = "an event could not be shown" }
    return { method = "basis/session/event", params = { sessionId = session, seq = tonumber(seq), event = event } }
  end
  return { id = tonumber(body:match('"id":(%d+)')), error = { code = -32700, message = "the answer could not be read" } }
end

---@private
---@param body string
function Connection:take(body)
  local message = decode(body)
  if message.method and message.id ~= nil then
    self:send({ jsonrpc = "2.0", id = message.id, error = { code = -32601, message = "method not found" } })
  elseif message.method then
    M.guard(self.handlers.on_notification, message.method, message.params or {})
  elseif message.id ~= nil then
    local callback = self.callbacks[message.id]
    self.callbacks[message.id] = nil
    if callback then
      M.guard(callback, message.error, message.result)
    end
  end
end

return M
