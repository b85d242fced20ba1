--- One attempt to reach the daemon: find its socket, start a daemon if nobody listens and that is wanted, shake hands.

local rpc = require("basis.rpc")

local uv = vim.uv

local M = {}

local START_TIMEOUT_MS, GREETING_TIMEOUT_MS = 30000, 10000
--- A daemon that ends takes its socket's path away within this time after it stopped listening.
local DEATH_CERTAIN_AFTER_MS = 100
--- Pauses between looks at the socket while a daemon starts.
local LOOK_FIRST_MS, LOOK_LONGEST_MS = 5, 60
--- Another daemon held the lock without listening: it is about to listen, or about to end.
local LAUNCH_AGAIN_AFTER_MS = 250

--- Connecting failed because nobody listens, or because the daemon's queue of new connections is full.
local NOBODY, BUSY = { ENOENT = true, ECONNREFUSED = true, ENOTDIR = true, ECONNRESET = true }, { EAGAIN = true, ETIMEDOUT = true }

--- When a daemon is started: for a person who wants something, always; in place of one that died, but not of one that was
--- stopped on purpose; never.
---@alias basis.Start "always"|"if_died"|"never"

---@class basis.Attempt
---@field start basis.Start
---@field handlers basis.Handlers
---@field callback fun(connection: basis.Connection?, result: table|string) the answer to `initialize`, or why there is none
---@field private path string
---@field private deadline number
---@field private is_launched boolean
---@field private launches_at number
---@field private is_over boolean
local Attempt = {}
Attempt.__index = Attempt

---@param start basis.Start
---@param handlers basis.Handlers
---@param callback fun(connection: basis.Connection?, result: table|string)
function M.open(start, handlers, callback)
  local self = setmetatable({
    start = start,
    handlers = handlers,
    callback = callback,
    deadline = uv.now() + START_TIMEOUT_MS,
    is_launched = false,
    launches_at = 0,
    is_over = false,
  }, Attempt)
  local ok, path = pcall(require("basis.address").socket)
  if not ok then
    return self:fail(tostring(path))
  end
  self.path = path
  self:look(LOOK_FIRST_MS)
end

---@private
---@param reason string
function Attempt:fail(reason)
  if not self.is_over then
    self.is_over = true
    self.callback(nil, reason)
  end
end

---@private
---@param pause integer milliseconds until the next look, should this one find nobody
function Attempt:look(pause)
  if self.is_over then
    return
  end
  local foreign = require("basis.address").why_foreign(self.path)
  if foreign then
    return self:fail(foreign .. "; name a socket of your own in BASIS_SOCKET")
  end
  rpc.connect(self.path, self.handlers, function(connection, fault)
    if self.is_over then
      return connection and connection:close()
    elseif connection then
      self:greet(connection, pause)
    elseif NOBODY[fault] then
      self:nobody_listens(pause)
    elseif BUSY[fault] then
      self:look_again(pause)
    else
      self:fail(("can't connect to %s: %s"):format(self.path, fault))
    end
  end)
end

---@private
---@param pause integer
function Attempt:look_again(pause)
  if uv.now() > self.deadline then
    return self:fail(("a daemon was started but nothing answers at %s"):format(self.path))
  end
  vim.defer_fn(function()
    self:look(math.min(math.ceil(pause * 1.5), LOOK_LONGEST_MS))
  end, pause)
end

---@private
---@param pause integer
function Attempt:nobody_listens(pause)
  if self.start == "never" then
    return self:fail("no daemon is running")
  elseif self.start == "if_died" then
    self.start = "always"
    vim.defer_fn(function()
      if uv.fs_lstat(self.path) then
        self:nobody_listens(pause)
      else
        self:fail("the daemon was stopped")
      end
    end, DEATH_CERTAIN_AFTER_MS)
    return
  end
  if not self.is_launched and uv.now() >= self.launches_at then
    self:launch()
  end
  self:look_again(pause)
end

---@private
function Attempt:launch()
  self.is_launched = true
  local fault = require("basis.launch").start(require("basis.config").get().cmd, function(fault)
    if fault then
      return self:fail(fault)
    end
    self.is_launched, self.launches_at = false, uv.now() + LAUNCH_AGAIN_AFTER_MS
  end)
  if fault then
    self:fail(fault)
  end
end

---@private
---@param connection basis.Connection
---@param pause integer
function Attempt:greet(connection, pause)
  local function ended(reason)
    connection:close()
    self:fail(reason)
  end
  vim.defer_fn(function()
    if not self.is_over and connection.is_open then
      ended("the daemon does not answer")
    end
  end, GREETING_TIMEOUT_MS)
  connection:request("initialize", require("basis.hello").params(), function(err, result)
    if self.is_over then
      return connection:close()
    elseif err == rpc.LOST then
      -- A daemon that is dying still takes connections for a moment.
      return self:look_again(pause)
    elseif err then
      return ended(require("basis.say").words(err))
    end
    local hello = vim.tbl_get(result, "capabilities", "experimental", "basis")
    if type(hello) ~= "table" then
      return ended(("whatever answers at %s is no basis daemon"):format(self.path))
    end
    self.is_over = true
    connection:notify("initialized")
    self.callback(connection, hello)
  end)
end

return M
