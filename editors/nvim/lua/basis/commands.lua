--- `:Basis` and its sub-commands.

local M = {}

---@class basis.Call
---@field rest string what follows the sub-command
---@field bang boolean
---@field first? integer
---@field last? integer
---@field buffer integer

---@class basis.Command
---@field run fun(call: basis.Call)
---@field complete? fun(lead: string): string[]

local function say()
  return require("basis.say")
end

local function client()
  return require("basis.client")
end

local function methods()
  return require("basis.protocol_gen").methods
end

---@return string
local function directory()
  local root = require("basis.config").get().root
  return root and root() or vim.fn.getcwd(-1, 0)
end

--- The current tab page's chat, made if there is none.
---@return basis.Chat
local function chat()
  return require("basis.layout").here() or require("basis.chat").new(directory(), nil)
end

--- Another session in the current tab page's chat.
---@param wanted string|false
local function switch(wanted)
  local chats = require("basis.chat")
  local shown = wanted and chats.of_session(wanted) or chats.new(directory(), wanted)
  require("basis.layout").show(shown, true)
  shown:connect()
end

--- The chat of this tab page if it has a session; else says that there is none.
---@return basis.Session?
local function session()
  local current = require("basis.layout").current()
  if current and current.session then
    return current.session
  end
  say().info("there is no session here; :Basis chat opens one")
end

---@param call basis.Call
---@return basis.Attachment?
local function selection(call)
  if call.first and call.last then
    return require("basis.context").selection(call.buffer, call.first, call.last)
  end
end

---@param buffer integer
---@return boolean
local function is_ours(buffer)
  return vim.startswith(vim.bo[buffer].filetype, "basis-")
end

---@param info basis.SessionInfo
---@return string
local function describe(info)
  local title = info.title ~= "" and info.title or "(nothing asked yet)"
  local state = require("basis.status").state_words(info.state)
  local when = info.updatedAt:sub(1, 16):gsub("T", " ")
  return require("basis.plain").one_line(("%s  [%s]  %s"):format(title, state, when), 200)
end

---@param callback fun(sessions: basis.SessionInfo[])
local function list_sessions(callback)
  client().when_connected(function()
    client().workspace(directory(), function(err, info)
      if err then
        return say().error(say().words(err))
      end
      client().request(methods().session_list, { workspace = info.path }, function(fault, page)
        if fault then
          return say().error(say().words(fault))
        end
        M.known_sessions = page.sessions
        callback(page.sessions)
      end)
    end)
  end)
end

--- Sessions as they were listed last, for completion.
---@type basis.SessionInfo[]
M.known_sessions = {}

---@param method string
---@return fun()
local function turn(method)
  return function()
    local target = session()
    if target then
      target:call(method)
    end
  end
end

---@type table<string, basis.Command>
M.commands = {}

M.commands.chat = {
  run = function()
    local current = chat()
    require("basis.layout").show(current, true)
    current:connect()
  end,
}

M.commands.new = {
  run = function()
    switch(false)
  end,
}

M.commands.send = {
  run = function(call)
    local current = chat()
    local attachment = selection(call)
    if attachment then
      current:attach(attachment)
    end
    require("basis.layout").show(current)
    local busy = require("basis.config").get().when_busy
    if call.bang then
      busy = busy == "steer" and "queue" or "steer"
    end
    current:send(busy, call.rest ~= "" and call.rest or nil)
  end,
}

M.commands.steer = {
  run = function(call)
    local current = chat()
    require("basis.layout").show(current)
    current:send("steer", call.rest ~= "" and call.rest or nil)
  end,
}

M.commands.add = {
  run = function(call)
    if not call.first and is_ours(call.buffer) then
      return say().info("go to the file or select the text to add")
    end
    local current = chat()
    local attachment = selection(call) or require("basis.context").file(call.buffer)
    current:attach(attachment)
    require("basis.layout").show(current)
    current:connect()
    say().info("goes along with the next prompt: " .. attachment.label)
  end,
}

M.commands.sessions = {
  run = function()
    list_sessions(function(sessions)
      if #sessions == 0 then
        return say().info("there are no sessions in " .. directory())
      end
      local options = { prompt = "Sessions", kind = "basis-session", format_item = describe }
      vim.ui.select(sessions, options, function(info)
        if info then
          switch(info.sessionId)
        end
      end)
    end)
  end,
}

M.commands.attach = {
  run = function(call)
    list_sessions(function(sessions)
      if call.rest == "" then
        if sessions[1] then
          return switch(sessions[1].sessionId)
        end
        return say().info("there are no sessions in " .. directory())
      end
      local matching = vim.tbl_filter(function(info)
        return vim.startswith(info.sessionId, call.rest)
      end, sessions)
      if #matching > 1 then
        return say().warn(("%d sessions begin with %s"):format(#matching, call.rest))
      end
      switch(matching[1] and matching[1].sessionId or call.rest)
    end)
  end,
  complete = function()
    return vim.tbl_map(function(info)
      return info.sessionId
    end, M.known_sessions)
  end,
}

M.commands.inbox = {
  run = function()
    client().when_connected(function()
      require("basis.asks").choose(client().canonical(directory()))
    end)
  end,
}

local SCOPES = { "session", "project", "global" }

M.commands.approve = {
  run = function(call)
    if call.rest ~= "" and not vim.tbl_contains(SCOPES, call.rest) then
      return say().warn(
        "approve takes nothing, or how long the answer holds for calls like it: `session`, `project` or `global`"
      )
    end
    require("basis.asks").answer_shown("allow", { scope = call.rest ~= "" and call.rest or "once" })
  end,
  complete = function()
    return SCOPES
  end,
}

M.commands.reject = {
  run = function(call)
    require("basis.asks").answer_shown("deny", { reason = call.rest ~= "" and call.rest or nil })
  end,
}

M.commands.stop = {
  run = function(call)
    turn(call.bang and methods().turn_cancel or methods().turn_stop)()
  end,
}

M.commands.cancel = {
  run = function()
    turn(methods().turn_cancel)()
  end,
}

M.commands.resume = {
  run = function()
    turn(methods().turn_resume)()
  end,
}

M.commands.log = {
  run = function()
    local lines = { "-- this editor", unpack(say().logged()) }
    local ok, path = pcall(require("basis.address").log)
    if ok then
      vim.list_extend(lines, { "", "-- the end of " .. path })
      vim.list_extend(lines, require("basis.launch").log_tail(path))
    end
    local buffer = vim.api.nvim_create_buf(false, true)
    local options = vim.bo[buffer]
    options.modeline, options.undolevels = false, -1
    vim.api.nvim_buf_set_lines(buffer, 0, -1, false, require("basis.plain").lines(table.concat(lines, "\n")))
    options.modifiable, options.bufhidden, options.filetype = false, "wipe", "basis-log"
    local window = vim.api.nvim_open_win(buffer, true, { split = "below", win = -1 })
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buffer), 0 })
  end,
}

---@return string[]
local function names()
  local list = vim.tbl_keys(M.commands)
  table.sort(list)
  return list
end

---@param call basis.Call
---@param name string
local function dispatch(name, call)
  local command = M.commands[name]
  if command then
    command.run(call)
  else
    say().error(("no such sub-command: %s (there are %s)"):format(name, table.concat(names(), ", ")))
  end
end

--- Carry out `:Basis …`.
---@param command vim.api.keyset.create_user_command.command_args
function M.run(command)
  local name, rest = command.args:match("^%s*(%S+)%s*(.-)%s*$")
  dispatch(name or "chat", {
    rest = rest or "",
    bang = command.bang,
    first = command.range > 0 and math.min(command.line1, command.line2) or nil,
    last = command.range > 0 and math.max(command.line1, command.line2) or nil,
    buffer = vim.api.nvim_get_current_buf(),
  })
end

--- Carry out a sub-command from Lua.
---@param words string[]
function M.run_words(words)
  local rest = table.concat(vim.list_slice(words, 2), " ")
  dispatch(words[1], { rest = rest, bang = false, buffer = vim.api.nvim_get_current_buf() })
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local name = line:match("Basis!?%s+(%S+)%s")
  local candidates = names()
  if name then
    local command = M.commands[name]
    candidates = command and command.complete and command.complete(lead) or {}
  end
  return vim.tbl_filter(function(candidate)
    return vim.startswith(candidate, lead)
  end, candidates)
end

return M
