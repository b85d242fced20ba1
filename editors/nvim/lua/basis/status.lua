--- What is going on, in a word: worked out when something changes, read as often as anybody likes.

local M = {}

---@alias basis.StatusState
---| "disconnected"
---| "connecting"
---| "idle"
---| "working"
---| "waiting_person"
---| "waiting_provider"
---| "interrupted"

---@class basis.Status
---@field state basis.StatusState
---@field asks integer questions that wait in this workspace
---@field text string

---@type basis.Status
local current = { state = "disconnected", asks = 0, text = "disconnected" }

local WORDS = {
  disconnected = "disconnected",
  connecting = "connecting",
  idle = "idle",
  working = "working",
  waiting_provider = "waiting for the provider",
  interrupted = "interrupted",
}

--- A time of the wire as the clock on the wall shows it; nothing for what is no time.
---@param at? string
---@return string?
function M.clock(at)
  local year, month, day, hour, min, sec = tostring(at):match("^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)")
  if not year then
    return nil
  end
  local now = os.time()
  local offset = os.difftime(now, os.time(os.date("!*t", now) --[[@as osdateparam]]))
  local utc = os.time({ year = year, month = month, day = day, hour = hour, min = min, sec = sec, isdst = false })
  return os.date("%H:%M:%S", utc + offset) --[[@as string]]
end

--- A session's state in words, for lists.
---@param state basis.SessionState
---@return string
function M.state_words(state)
  local words = state.kind == "waiting_person" and "waiting for you" or WORDS[state.kind] or state.kind
  local clock = state.kind == "waiting_provider" and M.clock(state["until"])
  return clock and words .. " until " .. clock or words
end

local STATES = { queued = "working", ended = "idle" }

---@param chat? basis.Chat
---@return basis.Status
local function work_out(chat)
  local client = require("basis.client")
  if client.state ~= "connected" then
    return { state = client.state, asks = 0, text = WORDS[client.state] }
  end
  local workspace = chat and client.canonical(chat.directory)
  local asks = #require("basis.asks").list(workspace)
  if asks > 0 then
    return { state = "waiting_person", asks = asks, text = ("waiting for you (%d)"):format(asks) }
  end
  local session = chat and chat.session
  if chat and (not session or not (session.is_attached or session.is_removed)) then
    return { state = "connecting", asks = 0, text = WORDS.connecting }
  end
  local kind = session and not session.is_removed and session.state and session.state.kind or "idle"
  local state = STATES[kind] or (WORDS[kind] and kind) or (kind == "waiting_person" and "working") or "idle"
  local text = state == "waiting_provider" and M.state_words(session.state) or WORDS[state]
  return { state = state, asks = 0, text = text }
end

--- The state of one chat in words.
---@param chat basis.Chat
---@return string
function M.words(chat)
  return work_out(chat).text
end

--- Work it out again for the current tab page's chat.
function M.update()
  local before = current
  current = work_out(require("basis.layout").current())
  if not vim.deep_equal(before, current) then
    require("basis.say").event("StateChanged", current)
    vim.cmd.redrawstatus({ bang = true })
  end
end

---@return basis.Status
function M.get()
  return current
end

return M
