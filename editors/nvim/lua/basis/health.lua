--- `:checkhealth basis`: asks the daemon itself, on a connection of its own, and starts nothing.

local M = {}

local health = vim.health
local uv = vim.uv

local PATIENCE_MS = 3000

--- Wait for an answer: a person has asked for this page and nothing else.
---@param start fun(done: fun(...))
---@return boolean answered
---@return ...
local function await(start)
  local answer
  start(function(...)
    answer = vim.F.pack_len(...)
  end)
  local answered = vim.wait(PATIENCE_MS, function()
    return answer ~= nil
  end, 5)
  if answered then
    return true, vim.F.unpack_len(answer)
  end
  return false
end

local function check_editor()
  health.start("Neovim")
  if vim.fn.has("nvim-0.10") == 1 then
    health.ok(("Neovim %s"):format(tostring(vim.version())))
  else
    health.error("Neovim 0.10 or newer is needed")
  end
  if pcall(vim.treesitter.language.add, "markdown") then
    health.ok("transcripts are highlighted as Markdown")
  else
    health.info("there is no Markdown parser; transcripts are shown plain")
  end
  local config = require("basis.config")
  local problems = config.problems(config.given)
  for _, problem in ipairs(problems) do
    health.error(problem, "see :help basis-options")
  end
  if #problems == 0 then
    health.ok("options are in order")
  end
end

---@param path string
local function check_place(path)
  local cmd = require("basis.config").get().cmd
  local program = vim.fn.exepath(cmd[1] or "")
  if program == "" then
    health.error(("%s is not executable"):format(cmd[1] or "`cmd`"), {
      "install it: pipx install basis-daemon",
      "or name it: require('basis').setup({ cmd = { '/path/to/basis-daemon' } })",
    })
  else
    health.ok("the daemon is started with " .. program)
  end
  local foreign = require("basis.address").why_foreign(path)
  local stat = uv.fs_stat(path)
  if foreign then
    health.error(foreign, "name a socket of your own in BASIS_SOCKET")
  elseif stat then
    health.info(("socket %s (mode %o)"):format(path, stat.mode % 512))
  else
    health.info(("socket %s (not there)"):format(path))
  end
end

---@param connection basis.Connection
---@param hello basis.ServerHello
local function check_daemon(connection, hello)
  local methods = require("basis.protocol_gen").methods
  health.ok(("the daemon answers: version %s, pid %d, protocol %d"):format(hello.daemon.version, hello.daemon.pid, hello.protocolVersion))
  local from = uv.hrtime()
  if await(function(done)
    connection:request(methods.daemon_ping, nil, done)
  end) then
    health.ok(("it takes %.1f ms to answer"):format((uv.hrtime() - from) / 1e6))
  else
    health.error("it does not answer a ping", "see :Basis log")
  end
  local answered, err, status = await(function(done)
    connection:request(methods.daemon_status, nil, done)
  end)
  if not answered or err then
    return health.error("it does not tell its status: " .. (err and require("basis.say").words(err) or "no answer"))
  end
  ---@cast status basis.DaemonStatusResult
  local counts = status.counts
  health.info(("up for %d min, %d clients, %d workspaces, %d questions waiting"):format(
    math.floor(status.uptimeS / 60), counts.clients or 0, counts.workspaces or 0, counts.pendingAsks or 0
  ))
  for _, provider in ipairs(status.providers or {}) do
    local text = ("%s: %s %s"):format(provider.provider, provider.state, provider.detail or "")
    if provider.state == "ready" then
      health.ok(text)
    elseif provider.state == "needs_key" then
      health.warn(text, "give it a key: basisctl connect " .. provider.provider)
    else
      health.info(text)
    end
  end
end

local function check_connection()
  health.start("Daemon")
  local ok, path = pcall(require("basis.address").socket)
  if not ok then
    return health.error(tostring(path))
  end
  check_place(path)
  local handlers = { on_notification = function() end, on_close = function() end }
  local answered, connection, result = await(function(done)
    require("basis.dial").open("never", handlers, done)
  end)
  if not answered then
    health.error("whatever listens at the socket does not answer", "see :Basis log; basisctl daemon stop --now")
  elseif connection then
    check_daemon(connection, result)
    connection:close()
  else
    health.warn(tostring(result), { "start one: basisctl daemon start", "or :Basis chat, which starts one" })
  end
end

function M.check()
  check_editor()
  check_connection()
end

return M
