--- A session's events as a person reads them: which event is worth which lines.
---
--- Decides nothing and forgets nothing: a block per message and per tool call, replaced by the authoritative item at its end.

local plain = require("basis.plain")

local M = {}

---@class basis.Transcript
---@field paper basis.Paper
---@field private client_id string
---@field private notes integer
---@field private errors table<string, true> errors told in this turn
---@field private streamed? string id of the message that is being streamed
local Transcript = {}
Transcript.__index = Transcript

--- Longest diff shown in the transcript, in lines; the question before it shows all of it.
local MAX_DIFF_LINES = 200

---@param paper basis.Paper
---@param client_id string
---@return basis.Transcript
function M.new(paper, client_id)
  return setmetatable({ paper = paper, client_id = client_id, notes = 0, errors = {} }, Transcript)
end

---@param by? basis.Actor
---@return string
function Transcript:who(by)
  if not by then
    return "you"
  end
  return by.clientId == self.client_id and "you" or by.client
end

---@private
---@param text string
---@param group? string
function Transcript:note(text, group)
  self.notes = self.notes + 1
  local block = self.paper:block("note:" .. self.notes)
  self.paper:set_head(block, { text }, group or "BasisNotice")
end

-- --- messages ---------------------------------------------------------------------------------------------------------

---@private
---@param key string
---@param name string
---@param text string
---@param images integer?
---@param index? integer
function Transcript:user(key, name, text, images, index)
  local block = self.paper:block(key, index)
  local extra = (images or 0) > 0 and (" (%d images)"):format(images) or ""
  self.paper:set_head(block, { "", "❯ " .. name .. extra }, "BasisUser")
  self.paper:set_text(block, text)
end

---@private
---@param event { messageId?: string }
---@param is_reasoning boolean
---@param index? integer
---@return basis.Block
function Transcript:message(event, is_reasoning, index)
  local kind = is_reasoning and "reasoning:" or "answer:"
  local block = self.paper:block(kind .. (event.messageId or "?"), index)
  if #block.head == 0 then
    if is_reasoning then
      block.text_group = "BasisReasoning"
      self.paper:set_head(block, { "┊ thinking" }, "BasisReasoning")
    else
      self.paper:set_head(block, { "" })
    end
  end
  return block
end

--- A message that will be written again.
---@private
---@param id? string
function Transcript:void(id)
  if id then
    self.paper:drop("answer:" .. id)
    self.paper:drop("reasoning:" .. id)
  end
  self.streamed = nil
end

-- --- tools ------------------------------------------------------------------------------------------------------------

---@param name? string
---@param summary? string
---@return string
local function tool_words(name, summary)
  name, summary = name or "tool", summary or ""
  return vim.startswith(summary, name) and summary or vim.trim(name .. " " .. summary)
end

---@param diff basis.FileDiff[]
---@return string
local function patches(diff)
  local lines = {}
  for _, file in ipairs(diff) do
    vim.list_extend(lines, vim.split(vim.trim(file.patch or ""), "\n", { plain = true }))
    if file.truncated then
      lines[#lines + 1] = "… (the diff is longer)"
    end
  end
  if #lines > MAX_DIFF_LINES then
    lines[MAX_DIFF_LINES] = ("… (%d more lines)"):format(#lines - MAX_DIFF_LINES + 1)
  end
  return table.concat(vim.list_slice(lines, 1, MAX_DIFF_LINES), "\n")
end

---@private
---@param id string
---@param sign string
---@param words string
---@param group? string
---@param index? integer
---@return basis.Block
function Transcript:tool(id, sign, words, group, index)
  local block = self.paper:block("tool:" .. id, index)
  self.paper:set_head(block, { sign .. " " .. words }, group or "BasisTool")
  return block
end

---@private
---@param block basis.Block
---@param diff? basis.FileDiff[]
function Transcript:show_diff(block, diff)
  if diff and #diff > 0 then
    block.is_diff = true
    self.paper:set_text(block, patches(diff))
  end
end

---@private
---@param event { toolCallId: string }
---@param sign string
---@param suffix string
function Transcript:mark_tool(event, sign, suffix)
  local block = self.paper:find("tool:" .. event.toolCallId)
  local words = block and block.words or event.toolName
  self:tool(event.toolCallId, sign, words .. suffix)
end

-- --- events -----------------------------------------------------------------------------------------------------------

---@type table<string, fun(self: basis.Transcript, event: table)>
local on = {}

function on:user_message(event)
  self:user("user:" .. (event.turnId or "?") .. ":" .. self.notes, self:who(event.by), event.text, event.imageCount)
  self.notes = self.notes + 1
end

function on:assistant_delta(event)
  self.streamed = event.messageId
  self.paper:feed(self:message(event, false), event.text)
end

function on:assistant_reasoning_delta(event)
  self.streamed = event.messageId
  self.paper:feed(self:message(event, true), event.text)
end

function on:assistant_message(event)
  self.streamed = nil
  self.paper:set_text(self:message(event, false), event.text)
end

function on:tool_queued(event)
  local words = tool_words(event.toolName, event.summary)
  self:tool(event.toolCallId, "○", words).words = words
end

function on:tool_started(event)
  self:mark_tool(event, "●", "")
end

function on:tool_progress(event)
  self:mark_tool(event, "●", " · " .. event.progress)
end

function on:tool_completed(event)
  local words = tool_words(event.toolName, event.summary)
  local sign, group = "✓", "BasisTool"
  if event.isError then
    sign, group = "✗", "BasisToolFailed"
  end
  local took = event.durationMs and event.durationMs >= 1000 and (" (%.1f s)"):format(event.durationMs / 1000) or ""
  self:show_diff(self:tool(event.toolCallId, sign, words .. took, group), event.diff)
end

function on:ask_opened(event)
  self:note("? " .. event.ask.title, "BasisAsk")
end

local SCOPES = { session = " for this session", project = " for this project", global = " everywhere" }

function on:ask_closed(event)
  local words = event.decision == "allow" and "allowed" or "denied"
  local scope = SCOPES[event.scope] or ""
  local reason = event.reason and event.reason ~= "" and ": " .. event.reason or ""
  self:note(("  %s%s by %s%s"):format(words, scope, self:who(event.by), reason), "BasisAsk")
end

function on:notice(event)
  self:note((event.severity == "warning" and "! " or "· ") .. event.message)
end

function on:retry(event)
  self:void(event.discardedMessageId)
  self:note(("· attempt %d of %d failed: %s"):format(event.attempt, event.maxAttempts, event.error))
end

function on:error(event)
  self.errors[event.message] = true
  self:note("✗ " .. event.message, "BasisError")
end

function on:task_updated(event)
  self:note(("· %s %s: %s"):format(event.kind, event.status, event.title))
end

function on:compaction_started()
  self:note("· shortening the conversation")
end

function on:compaction_completed(event)
  self:note(("· shortened: %d entries became a summary"):format(event.replacedItems))
end

function on:branched(event)
  self:note(("· the conversation goes on from an earlier point; %d entries are left behind"):format(event.abandonedEntries))
end

function on:run_started(event)
  self.errors = {}
  if event.resumed then
    self:void(self.streamed)
    self:note("· the turn goes on where it was cut short")
  end
end

function on:run_finished(event)
  local message = event.message or ""
  if event.status == "error" then
    if not self.errors[message] then
      self:note("✗ " .. message, "BasisError")
    end
  elseif event.status ~= "ok" then
    self:note(vim.trim(("· %s %s"):format(event.status, message)))
  elseif event.stoppedBy then
    self:note("· ended early: " .. event.stoppedBy)
  end
end

function on:turn_queued(event)
  self:note(("· a prompt of %s waits (%d before it)"):format(self:who(event.by), event.position))
end

function on:config_changed(event)
  self:note(("· %s is %s now (%s)"):format(event.option, event.value, self:who(event.by)))
end

function on:lease_conflict(event)
  self:note("! the conversation is open elsewhere: " .. event.holder, "BasisError")
end

--- Paint one event. Types that are not known here say nothing to a person.
---@param event basis.AnyEvent
function Transcript:take(event)
  local handler = on[event.type]
  if handler then
    handler(self, event)
  end
end

-- --- the past ---------------------------------------------------------------------------------------------------------

---@private
---@param item basis.HistoryItem
---@param index? integer
---@return basis.Block?
function Transcript:item(item, index)
  if item.kind == "assistant" then
    if item.reasoning and item.reasoning ~= "" then
      self.paper:set_text(self:message(item, true, index), item.reasoning)
      index = index and index + 1
    end
    if item.text ~= "" then
      self.paper:set_text(self:message({ messageId = item.messageId or item.entryId }, false, index), item.text or "")
    end
  elseif item.kind == "tool" then
    local is_done = item.summary ~= nil or item.resultId ~= nil or (item.text or "") ~= ""
    local sign = item.isError and "✗" or is_done and "✓" or "○"
    local words = tool_words(item.toolName, item.summary)
    local block = self:tool(item.toolCallId, sign, words, item.isError and "BasisToolFailed" or "BasisTool", index)
    block.words = words
    self:show_diff(block, item.diff)
  elseif item.kind == "user" then
    self:user("user:" .. item.entryId, "you", item.text or "", item.imageCount, index)
  elseif item.kind == "summary" or item.kind == "delegation" then
    local block = self.paper:block("entry:" .. item.entryId, index)
    self.paper:set_head(block, { "· " .. item.kind }, "BasisNotice")
    self.paper:set_text(block, item.text or "")
  end
end

--- Paint a snapshot in place of whatever there was.
---@param snapshot basis.SessionSnapshot
function Transcript:reset(snapshot)
  self.paper:clear()
  for _, item in ipairs(snapshot.items) do
    self:item(item)
  end
  local partial = snapshot.partial
  self.streamed = partial and partial.messageId
  if partial then
    if (partial.reasoning or "") ~= "" then
      self.paper:set_text(self:message(partial, true), partial.reasoning)
    end
    if (partial.text or "") ~= "" then
      self.paper:set_text(self:message(partial, false), partial.text)
    end
  end
end

--- Paint an earlier page of the conversation above what there is.
---@param items basis.HistoryItem[] oldest first
function Transcript:prepend(items)
  local index = 1
  for _, item in ipairs(items) do
    local count = #self.paper.blocks
    self:item(item, index)
    index = index + #self.paper.blocks - count
  end
end

--- What a question is about, as lines: exactly what will run.
---@param preview basis.Preview
---@return string text
---@return boolean is_diff
function M.preview(preview)
  if preview.type == "diff" then
    local parts = {}
    for _, file in ipairs(preview.files) do
      parts[#parts + 1] = (file.patch or ""):gsub("\n$", "")
      if file.truncated then
        parts[#parts + 1] = "… (this is not all of the diff)"
      end
    end
    return table.concat(parts, "\n"), true
  elseif preview.type == "command" then
    local lines = { "$ " .. preview.command, "", "in " .. plain.one_line(preview.cwd) }
    if preview.target and preview.target ~= "local" then
      lines[#lines + 1] = "on " .. preview.target
    end
    local class = preview.classification
    if class then
      lines[#lines + 1] = "looks like: " .. class.intent
      for _, warning in ipairs(class.warnings or {}) do
        lines[#lines + 1] = "! " .. warning
      end
    end
    return table.concat(lines, "\n"), false
  end
  local ok, text = pcall(vim.json.encode, preview.input)
  return ok and text or tostring(preview.input), false
end

return M
