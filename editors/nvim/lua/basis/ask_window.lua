--- The window a question is shown in: a float that never takes the cursor by itself.
---
--- Owns its looks and its keys. Which question it shows, and what an answer does, is `asks.lua`'s.

local config = require("basis.config")
local plain = require("basis.plain")

local M = {}

local FAREWELL_MS = 3000
local MAX_LINES = 5000

---@type integer?
local window
---@type integer?
local buffer
local is_farewell = false

---@return boolean
function M.is_open()
  return not is_farewell
    and window ~= nil
    and vim.api.nvim_win_is_valid(window)
    and vim.api.nvim_win_get_tabpage(window) == vim.api.nvim_get_current_tabpage()
end

function M.close()
  if is_farewell then
    return
  end
  if window and vim.api.nvim_win_is_valid(window) then
    pcall(vim.api.nvim_win_close, window, true)
  end
  if buffer and vim.api.nvim_buf_is_valid(buffer) then
    pcall(vim.api.nvim_buf_delete, buffer, { force = true })
  end
  window, buffer = nil, nil
end

--- Keys that allow, by how long the answer holds.
local ALLOW_KEYS = { once = "y", session = "a", project = "p", global = "g" }

---@param ask basis.Ask
---@return table<string, { label: string, decision: basis.Decision, scope: basis.Scope }>
local function keys_of(ask)
  local keys = {}
  for _, option in ipairs(ask.options) do
    local key = option.decision == "allow" and ALLOW_KEYS[option.scope]
      or option.decision == "deny" and option.scope == "once" and "n"
    if key then
      keys[key] = option
    end
  end
  return keys
end

---@param ask basis.Ask
---@return string[] lines
---@return integer first line of the preview, from 0
---@return integer last
---@return boolean is_diff
local function contents(ask)
  local lines = plain.lines(ask.title)
  if ask.description and ask.description ~= "" and ask.description ~= ask.title then
    vim.list_extend(lines, plain.lines(ask.description))
  end
  lines[#lines + 1] = ""
  local first = #lines
  local text, is_diff = require("basis.transcript").preview(ask.preview)
  local body = plain.lines(text)
  if #body > MAX_LINES then
    body = vim.list_slice(body, 1, MAX_LINES)
    body[#body + 1] = "… (this is not all of it)"
  end
  vim.list_extend(lines, body)
  local last = #lines
  -- What outlives the session is spelled out: its words are too many for the line of keys.
  local keys = keys_of(ask)
  for _, key in ipairs({ "p", "g" }) do
    if keys[key] then
      lines[#lines + 1] = key .. "  " .. plain.one_line(keys[key].label, 200)
    end
  end
  return lines, first, last, is_diff
end

---@param ask basis.Ask
---@return string
local function footer(ask)
  local keys, words = keys_of(ask), {}
  for _, key in ipairs({ "y", "a", "n" }) do
    if keys[key] then
      words[#words + 1] = key .. " " .. plain.one_line(keys[key].label, 40):lower()
    end
  end
  words[#words + 1] = "r deny with a reason"
  words[#words + 1] = "q later"
  return " " .. table.concat(words, " · ") .. " "
end

---@param lines string[]
---@param title string
---@param foot? string
---@return vim.api.keyset.win_config
local function place(lines, title, foot)
  local width = math.max(vim.fn.strdisplaywidth(title), foot and vim.fn.strdisplaywidth(foot) or 0, 36)
  for index = 1, math.min(#lines, 200) do
    width = math.max(width, math.min(vim.fn.strdisplaywidth(lines[index]), 100))
  end
  width = math.max(1, math.min(width, vim.o.columns - 4))
  local rows = 0
  for index = 1, math.min(#lines, 200) do
    rows = rows + math.max(1, math.ceil(vim.fn.strdisplaywidth(lines[index]) / width))
  end
  local most = math.max(1, math.floor((vim.o.lines - 4) * config.get().ask_height))
  local options = {
    relative = "editor",
    anchor = "NE",
    row = 1,
    col = vim.o.columns - 1,
    width = width,
    height = math.max(1, math.min(rows, most)),
    style = "minimal",
    border = config.get().ask_border,
    zindex = 60,
  }
  if options.border ~= "none" then
    options.title = title
    options.footer = foot
  end
  return options
end

---@param lines string[]
---@return integer
local function make_buffer(lines)
  local made = vim.api.nvim_create_buf(false, true)
  local options = vim.bo[made]
  options.undolevels, options.modeline, options.swapfile = -1, false, false
  vim.api.nvim_buf_set_lines(made, 0, -1, false, lines)
  options.modifiable, options.bufhidden, options.filetype = false, "wipe", "basis-ask"
  return made
end

---@param made integer
---@param ask basis.Ask
local function map_keys(made, ask)
  local asks = require("basis.asks")
  local function map(key, desc, action)
    vim.keymap.set("n", key, action, { buffer = made, nowait = true, desc = "Basis: " .. desc })
  end
  for key, option in pairs(keys_of(ask)) do
    map(key, option.label, function()
      asks.answer(ask, option.decision, { scope = option.scope })
    end)
  end
  map("r", "deny with a reason", function()
    vim.ui.input({ prompt = "Why not? The model reads it: " }, function(reason)
      if reason and reason ~= "" then
        asks.answer(ask, "deny", { reason = reason })
      end
    end)
  end)
  map("q", "answer later", asks.hide)
end

---@param lines string[]
---@param placement vim.api.keyset.win_config
---@param is_entered boolean
local function open_window(lines, placement, is_entered)
  buffer = make_buffer(lines)
  -- noautocmd goes with a window that nobody enters: nothing else should hear of it.
  placement.noautocmd = not is_entered or nil
  window = vim.api.nvim_open_win(buffer, is_entered, placement)
  for name, value in pairs({ wrap = true, linebreak = false, conceallevel = 0, list = false, spell = false }) do
    vim.api.nvim_set_option_value(name, value, { win = window, scope = "local" })
  end
end

--- Show `ask`; take the cursor there only if `is_entered`.
---@param ask basis.Ask
---@param options { count: integer, is_entered: boolean }
function M.open(ask, options)
  is_farewell = false
  M.close()
  local lines, first, last, is_diff = contents(ask)
  local title = options.count > 1 and (" basis asks (1 of %d) "):format(options.count) or " basis asks "
  open_window(lines, place(lines, title, footer(ask)), options.is_entered)
  map_keys(buffer, ask)
  if is_diff then
    require("basis.paper").colour_diff(buffer, first, vim.list_slice(lines, first + 1, last))
  end
end

--- The question on the screen was answered elsewhere: say by whom, and go after a moment.
---@param text string
function M.farewell(text)
  if not M.is_open() then
    return
  end
  M.close()
  local lines = { plain.one_line(text, 200) }
  open_window(lines, place(lines, " basis asked "), false)
  is_farewell = true
  local mine = window
  vim.defer_fn(function()
    if window == mine then
      is_farewell = false
      M.close()
      require("basis.asks").refresh()
    end
  end, FAREWELL_MS)
end

return M
