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
  return { state = state, asks = 0, text = WORDS[state] }
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
