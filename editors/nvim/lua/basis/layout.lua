--- The windows of chats: one pair per tab page, beside whatever else is there.

local config = require("basis.config")

local M = {}

---@class basis.Place
---@field chat basis.Chat
---@field transcript? integer
---@field prompt? integer

---@type table<integer, basis.Place> by tab page
local places = {}

---@param window? integer
---@return boolean
local function is_there(window)
  return window ~= nil and vim.api.nvim_win_is_valid(window)
end

--- The chat of the current tab page.
---@return basis.Chat?
function M.here()
  local place = places[vim.api.nvim_get_current_tabpage()]
  return place and place.chat
end

---@type basis.Chat?
local last_shown

--- The chat of the current tab page; where there is none, the one that was shown last.
---@return basis.Chat?
function M.current()
  return M.here() or last_shown
end

--- Stop watching what no tab page shows any more.
---@param chat basis.Chat
local function let_go(chat)
  for _, place in pairs(places) do
    if place.chat == chat then
      return
    end
  end
  chat:close()
end

---@param window integer
---@param values table<string, any>
local function set(window, values)
  for name, value in pairs(values) do
    vim.api.nvim_set_option_value(name, value, { win = window, scope = "local" })
  end
end

local PLAIN = {
  wrap = true, linebreak = true, number = false, relativenumber = false, signcolumn = "no", foldcolumn = "0",
  foldenable = false, list = false, spell = false, conceallevel = 0, cursorline = false, winfixbuf = true,
}

---@param buffer integer
---@param chat basis.Chat
---@return integer
local function open_transcript(buffer, chat)
  local options = config.get()
  local is_beside = options.chat_position == "left" or options.chat_position == "right"
  local whole = is_beside and vim.o.columns or vim.o.lines
  local size = math.max(10, math.floor(whole * options.chat_size))
  local window = vim.api.nvim_open_win(buffer, false, {
    split = options.chat_position,
    win = -1,
    width = is_beside and size or nil,
    height = not is_beside and size or nil,
  })
  set(window, PLAIN)
  set(window, { winbar = chat:bar() })
  vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buffer), 0 })
  return window
end

---@param place basis.Place
local function open_prompt(place)
  place.prompt = vim.api.nvim_open_win(place.chat.prompt_buffer, false, {
    split = "below",
    win = place.transcript,
    height = math.max(1, math.floor(config.get().prompt_height)),
  })
  set(place.prompt, PLAIN)
  set(place.prompt, { winfixheight = true, winbar = place.chat:prompt_bar() })
end

---@param window integer
---@param buffer integer
local function show_in(window, buffer)
  if vim.api.nvim_win_get_buf(window) ~= buffer then
    set(window, { winfixbuf = false })
    vim.api.nvim_win_set_buf(window, buffer)
    set(window, PLAIN)
  end
end

--- Show a chat in the current tab page. The cursor goes to its prompt only if `is_entered`.
---@param chat basis.Chat
---@param is_entered? boolean
function M.show(chat, is_entered)
  local tab = vim.api.nvim_get_current_tabpage()
  local place = places[tab] or { chat = chat }
  local before = place.chat
  places[tab] = place
  place.chat, last_shown = chat, chat
  chat:ensure_buffers()
  if is_there(place.transcript) then
    show_in(place.transcript, chat.paper.buffer)
    vim.api.nvim_win_set_cursor(place.transcript, { vim.api.nvim_buf_line_count(chat.paper.buffer), 0 })
  else
    place.transcript = open_transcript(chat.paper.buffer, chat)
  end
  if is_there(place.prompt) then
    show_in(place.prompt, chat.prompt_buffer)
    set(place.prompt, { winfixheight = true })
  else
    open_prompt(place)
  end
  if is_entered then
    vim.api.nvim_set_current_win(place.prompt)
  end
  if before ~= chat then
    let_go(before)
  end
  M.update(chat)
  require("basis.status").update()
end

--- Give the windows that show a chat their bars again.
---@param chat basis.Chat
function M.update(chat)
  for tab, place in pairs(places) do
    if not vim.api.nvim_tabpage_is_valid(tab) then
      places[tab] = nil
    elseif place.chat == chat then
      M.set_bar(place.transcript, chat.paper.buffer, chat:bar())
      M.set_bar(place.prompt, chat.prompt_buffer, chat:prompt_bar())
    end
  end
end

---@param window? integer
---@param buffer integer
---@param text string
function M.set_bar(window, buffer, text)
  if is_there(window) and vim.api.nvim_win_get_buf(window) == buffer and vim.wo[window].winbar ~= text then
    set(window, { winbar = text })
  end
end

--- The session that `chat` was to get is shown by `other` already: use that one everywhere.
---@param chat basis.Chat
---@param other basis.Chat
function M.merge(chat, other)
  other:ensure_buffers()
  vim.list_extend(other.attachments, chat.attachments)
  local text, is_due = chat:text(), chat.is_due
  if not is_due and vim.trim(text) ~= "" then
    other:set_text(vim.trim(other:text() .. "\n" .. text))
  end
  local tab = vim.api.nvim_get_current_tabpage()
  for each, place in pairs(places) do
    if place.chat == chat then
      place.chat = other
      if each == tab then
        M.show(other)
      else
        for window, buffer in pairs({ [place.transcript or -1] = other.paper.buffer, [place.prompt or -1] = other.prompt_buffer }) do
          if is_there(window) then
            show_in(window, buffer)
          end
        end
      end
    end
  end
  if last_shown == chat then
    last_shown = other
  end
  chat:close()
  M.update(other)
  if is_due then
    other:send(chat.when_busy, text)
  end
end

vim.api.nvim_create_autocmd("TabEnter", {
  group = vim.api.nvim_create_augroup("basis.layout", {}),
  callback = function()
    require("basis.status").update()
  end,
})

return M
