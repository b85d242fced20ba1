--- Starting a daemon, detached from this editor.
---
--- Of many that are started at once one stays: the daemon's own lock decides, and the others end with status 75.

local M = {}

local uv = vim.uv

local ANOTHER_RUNS_STATUS = 75

-- The first editor's keys and endpoint must not become everybody's, and a command's run is not the daemon's.
local NOT_INHERITED = {}
for name in ([[
  BASIS_API_KEY OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY OPENROUTER_API_KEY BASIS_BASE_URL OPENAI_BASE_URL
  BASIS_SESSION_ID BASIS_TASK_ID BASIS_PARENT_TASK_ID
]]):gmatch("%S+") do
  NOT_INHERITED[name] = true
end

---@param directory string
local function make_private(directory)
  if not uv.fs_stat(directory) then
    make_private(vim.fs.dirname(directory))
    uv.fs_mkdir(directory, 448) -- 0700
  end
end

---@return string[]
local function environment()
  local list = {}
  for name, value in pairs(require("basis.hello").environment()) do
    if not NOT_INHERITED[name] then
      list[#list + 1] = name .. "=" .. value
    end
  end
  return list
end

--- The last lines of the log, from byte `from` on.
---@param path string
---@param from? integer
---@return string[]
function M.log_tail(path, from)
  local file = io.open(path, "rb")
  if not file then
    return {}
  end
  local size = file:seek("end") or 0
  file:seek("set", math.max(from or 0, size - 16384))
  local text = file:read("*a") or ""
  file:close()
  local lines = require("basis.plain").lines(vim.trim(text))
  return vim.list_slice(lines, math.max(1, #lines - 199))
end

--- Start `cmd`. `on_end` is called if the process ends, with why that is a failure, or nil when another daemon runs.
---@param cmd string[]
---@param on_end fun(fault: string?)
---@return string? fault why it could not be started
function M.start(cmd, on_end)
  local program = vim.fn.exepath(cmd[1] or "")
  if program == "" then
    return ("%s is not executable: install basis-daemon (pipx install basis-daemon) or set `cmd`"):format(cmd[1] or "cmd")
  end
  local log_path = require("basis.address").log()
  make_private(vim.fs.dirname(log_path))
  local log, fault = uv.fs_open(log_path, "a", 384) -- 0600
  if not log then
    return ("can't write to %s: %s"):format(log_path, fault)
  end
  local stat = uv.fs_fstat(log)
  local mark = stat and stat.size or 0
  local handle, pid
  ---@diagnostic disable-next-line: missing-fields
  handle, pid = uv.spawn(program, {
    args = vim.list_slice(cmd, 2),
    cwd = "/",
    env = environment(),
    detached = true,
    stdio = { nil, log, log },
  }, function(code, signal)
    handle:close()
    vim.schedule(function()
      if code == 0 or code == ANOTHER_RUNS_STATUS then
        return on_end(nil)
      end
      local how = signal > 0 and ("signal %d"):format(signal) or ("exit status %d"):format(code)
      local tail = M.log_tail(log_path, mark)
      on_end(("the daemon ended while starting (%s): %s"):format(how, tail[#tail] or "it said nothing in " .. log_path))
    end)
  end)
  uv.fs_close(log)
  if not handle then
    return ("can't run %s: %s"):format(program, pid)
  end
  handle:unref()
  require("basis.say").log(("started %s (pid %s)"):format(program, pid))
end

return M
