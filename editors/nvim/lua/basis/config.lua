--- Options. One table says what each is, what it defaults to and what it is for; there is no other list of them.

---@class basis.Option
---@field type type|type[] what `type()` says of a value
---@field default any
---@field choices? string[]
---@field doc string

---@class basis.Config
---@field cmd string[]
---@field start boolean
---@field root? fun(): string
---@field when_busy "steer"|"queue"
---@field chat_position "right"|"left"|"below"|"above"
---@field chat_size number
---@field prompt_height integer
---@field ask_border string|string[]
---@field ask_height number
---@field notify boolean
---@field markdown boolean

local M = {}

---@type table<string, basis.Option>
M.schema = {
  cmd = {
    type = "table",
    default = { "basis-daemon" },
    doc = "Command that starts the daemon when none runs.",
  },
  start = { type = "boolean", default = true, doc = "Whether a daemon is started when none runs." },
  root = {
    type = { "function", "nil" },
    default = nil,
    doc = "Returns the directory to work in. Without it: the current tab page's directory.",
  },
  when_busy = {
    type = "string",
    default = "steer",
    choices = { "steer", "queue" },
    doc = "What becomes of a prompt while a turn runs: it steers the turn, or waits until it has ended.",
  },
  chat_position = {
    type = "string",
    default = "right",
    choices = { "right", "left", "below", "above" },
    doc = "Where the chat opens.",
  },
  chat_size = { type = "number", default = 0.42, doc = "Share of the editor's width (or height) the chat takes." },
  prompt_height = { type = "number", default = 6, doc = "Lines of the prompt's window." },
  ask_border = { type = { "string", "table" }, default = "rounded", doc = "Border of the window that asks." },
  ask_height = { type = "number", default = 0.5, doc = "Largest share of the editor's height a question takes." },
  notify = { type = "boolean", default = true, doc = "Whether `vim.notify` tells of questions and failed turns." },
  markdown = { type = "boolean", default = true, doc = "Whether the transcript is highlighted as Markdown." },
}

---@type basis.Config?
local current

---@return string[]
function M.names()
  local names = vim.tbl_keys(M.schema)
  table.sort(names)
  return names
end

---@return basis.Config
local function defaults()
  local config = {}
  for name, option in pairs(M.schema) do
    config[name] = vim.deepcopy(option.default)
  end
  return config
end

---@param name string
---@return string the known option that begins most like it, if any does
local function suggestion(name)
  local best, length = nil, 2
  for _, known in ipairs(M.names()) do
    local common = 0
    while common < #known and known:byte(common + 1) == name:byte(common + 1) do
      common = common + 1
    end
    if common > length then
      best, length = known, common
    end
  end
  return best and (" (did you mean %s?)"):format(best) or ""
end

---@param name string
---@param value any
---@return string? problem
local function problem(name, value)
  local option = M.schema[name]
  if not option then
    return ("unknown option %s%s"):format(name, suggestion(name))
  end
  local types = type(option.type) == "table" and option.type or { option.type }
  if not vim.tbl_contains(types, type(value)) then
    return ("%s must be a %s, not a %s"):format(name, table.concat(types, " or "), type(value))
  end
  if option.choices and not vim.tbl_contains(option.choices, value) then
    return ("%s must be one of %s"):format(name, table.concat(option.choices, ", "))
  end
end

--- What is wrong with `options`; empty when nothing is.
---@param options table<string, any>
---@return string[]
function M.problems(options)
  local problems = {}
  for name, value in pairs(options) do
    problems[#problems + 1] = problem(name, value)
  end
  table.sort(problems)
  return problems
end

--- Options in use before `setup()` was ever called are the defaults.
---@return basis.Config
function M.get()
  current = current or defaults()
  return current
end

--- Use `options`; an option that can't be used is left at its default.
---@param options? table<string, any>
---@return string[] problems
function M.set(options)
  current = defaults()
  M.given = options or {}
  for name, value in pairs(M.given) do
    if not problem(name, value) then
      current[name] = value
    end
  end
  return M.problems(M.given)
end

--- What `setup()` was called with; `:checkhealth` looks at it again.
---@type table<string, any>
M.given = {}

return M
