--- What the person is told, and the plugin's own log.

local M = {}

local MAX_LOG_LINES = 500

---@type string[]
local log = {}

--- Keep a line for `:Basis log`. Prompts, answers and environments are never logged.
---@param text string
function M.log(text)
  log[#log + 1] = os.date("%H:%M:%S ") .. require("basis.plain").visible(text)
  if #log > MAX_LOG_LINES then
    table.remove(log, 1)
  end
end

---@return string[]
function M.logged()
  return vim.list_slice(log)
end

---@param level integer
---@param text string
local function notify(level, text)
  M.log(text)
  -- A message that needs more room than there is would stop everything until a key is pressed.
  local room = math.max(20, vim.o.columns * math.max(vim.o.cmdheight, 1) - 14)
  local line = require("basis.plain").one_line("basis: " .. text)
  if vim.fn.strdisplaywidth(line) > room then
    line = vim.fn.strcharpart(line, 0, room - 1) .. "…"
  end
  vim.notify(line, level)
end

---@param text string
function M.info(text)
  notify(vim.log.levels.INFO, text)
end

---@param text string
function M.warn(text)
  notify(vim.log.levels.WARN, text)
end

---@param text string
function M.error(text)
  notify(vim.log.levels.ERROR, text)
end

--- An error of the daemon in words: what happened and what to do about it.
---@param err basis.RpcError
---@return string
function M.words(err)
  local data = err.data or {}
  local text = data.message or err.message or "unknown error"
  return data.hint and ("%s (%s)"):format(text, data.hint) or text
end

--- Fire `User Basis<name>`.
---@param name string
---@param data? table
function M.event(name, data)
  vim.api.nvim_exec_autocmds("User", { pattern = "Basis" .. name, modeline = false, data = data or {} })
end

return M
