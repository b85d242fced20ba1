--- A conversation on the screen: the transcript, the prompt below it, and the session they belong to.
---
--- Owns the two buffers and what is in the prompt until the daemon has it. The windows are `layout.lua`'s.

local Paper = require("basis.paper")
local Session = require("basis.session")
local Transcript = require("basis.transcript")
local client = require("basis.client")
local hello = require("basis.hello")
local methods = require("basis.protocol_gen").methods
local plain = require("basis.plain")
local say = require("basis.say")

local M = {}

local DRAFT_AFTER_MS = 300

---@class basis.Chat
---@field directory string
---@field paper basis.Paper
---@field prompt_buffer integer
---@field session? basis.Session
---@field attachments basis.Attachment[]
---@field is_due boolean the prompt is to be sent as soon as that is possible
---@field private transcript basis.Transcript
---@field private wanted? string|false id to bind to; false: a new session
---@field private is_binding boolean
---@field private is_explicit boolean whether a session was asked for by name
---@field private problem? string why there is no session
---@field private notices string[] what the workspace has to tell, until it was told
---@field private is_sending boolean
---@field private remembered? string id of the session that was told to be this chat's
---@field private stash? string what was in the prompt before another text was sent from it
---@field private when_busy? "steer"|"queue"
---@field private draft string what the daemon keeps as the draft
---@field private is_draft_known boolean
---@field private is_draft_due boolean
local Chat = {}
Chat.__index = Chat

---@type basis.Chat[]
local chats = {}

--- Chats that have a session or are about to.
---@return basis.Chat[]
function M.all()
  return chats
end

---@param id string
---@return basis.Chat?
function M.of_session(id)
  for _, chat in ipairs(chats) do
    if chat.session and chat.session.id == id then
      return chat
    end
  end
end

--- A chat in `directory` with the session `wanted`; with a new one for false; with the last one used there for nil.
---@param directory string
---@param wanted? string|false
---@return basis.Chat
function M.new(directory, wanted)
  local paper = Paper.new()
  local self = setmetatable({
    directory = directory, paper = paper, prompt_buffer = -1, attachments = {}, is_due = false, wanted = wanted,
    notices = {}, is_binding = false, is_explicit = type(wanted) == "string", is_sending = false, draft = "", is_draft_known = false, is_draft_due = false,
    transcript = Transcript.new(paper, hello.client_id()),
  }, Chat)
  chats[#chats + 1] = self
  self:ensure_buffers()
  self:changed()
  return self
end

-- --- buffers ----------------------------------------------------------------------------------------------------------

--- Make what somebody has wiped out.
function Chat:ensure_buffers()
  if not self.paper:has_buffer() then
    self.paper:make_buffer()
  end
  if not vim.b[self.paper.buffer].basis_ready then
    vim.b[self.paper.buffer].basis_ready = true
    self:dress_transcript()
  end
  if not (vim.api.nvim_buf_is_valid(self.prompt_buffer) and vim.api.nvim_buf_is_loaded(self.prompt_buffer)) then
    self:make_prompt()
  end
end

---@private
function Chat:dress_transcript()
  local buffer = self.paper.buffer
  local function map(key, desc, action)
    vim.keymap.set("n", key, action, { buffer = buffer, desc = "Basis: " .. desc })
  end
  map("]]", "next prompt", function()
    self:jump(1)
  end)
  map("[[", "previous prompt", function()
    self:jump(-1)
  end)
  map("<CR>", "earlier messages, on the first line", function()
    self:load_earlier()
  end)
end

---@private
function Chat:make_prompt()
  if vim.api.nvim_buf_is_valid(self.prompt_buffer) then
    pcall(vim.api.nvim_buf_delete, self.prompt_buffer, { force = true })
  end
  local buffer = vim.api.nvim_create_buf(false, true)
  self.prompt_buffer = buffer
  vim.api.nvim_buf_set_name(buffer, ("basis://prompt/%d"):format(buffer))
  local options = vim.bo[buffer]
  options.bufhidden, options.swapfile, options.modeline, options.filetype = "hide", false, false, "basis-prompt"
  if self.draft ~= "" then
    self:set_text(self.draft)
  end
  local function send()
    self:send()
  end
  vim.keymap.set("n", "<CR>", send, { buffer = buffer, desc = "Basis: send" })
  vim.keymap.set({ "n", "i" }, "<C-s>", send, { buffer = buffer, desc = "Basis: send" })
  vim.api.nvim_buf_attach(buffer, false, {
    on_lines = function()
      if self.prompt_buffer ~= buffer then
        return true
      end
      self:keep_draft_soon()
    end,
  })
end

--- What is in the prompt.
---@return string
function Chat:text()
  if not vim.api.nvim_buf_is_loaded(self.prompt_buffer) then
    return self.draft
  end
  return table.concat(vim.api.nvim_buf_get_lines(self.prompt_buffer, 0, -1, false), "\n")
end

--- Replace what is in the prompt.
---@param text string
function Chat:set_text(text)
  vim.api.nvim_buf_set_lines(self.prompt_buffer, 0, -1, false, vim.split(text, "\n", { plain = true }))
end

---@private
---@param direction 1|-1
function Chat:jump(direction)
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local target
  for _, block in ipairs(self.paper.blocks) do
    if vim.startswith(block.key, "user:") then
      local at = self.paper:row(block) + 1
      if direction == 1 and at > row then
        target = target or at
      elseif direction == -1 and at < row then
        target = at
      end
    end
  end
  if target then
    vim.cmd("normal! m'")
    vim.api.nvim_win_set_cursor(0, { target + 1, 0 })
  end
end

---@private
function Chat:load_earlier()
  local session = self.session
  local cursor = session and session.earlier
  if not session or not cursor or vim.api.nvim_win_get_cursor(0)[1] ~= 1 then
    return
  end
  session.earlier = nil
  session:call(methods.session_history, function(err, page)
    if err then
      session.earlier = cursor
      say.warn(say.words(err))
    else
      session.earlier = page.beforeCursor
      self.transcript:prepend(page.items)
    end
    self:changed()
  end, { cursor = cursor, direction = "before" })
end

-- --- the session ------------------------------------------------------------------------------------------------------

--- Get a session, connecting first if need be.
function Chat:connect()
  client.connect()
  if self.session and self.session.is_removed and client.state == "connected" then
    self.session:attach()
  end
  self:bind()
end

--- Get the session if there is a connection and none is bound yet.
---@private
function Chat:bind()
  if self.session or self.is_binding or client.state ~= "connected" then
    return
  end
  self.is_binding = true
  client.workspace(self.directory, function(err, info)
    if err then
      return self:failed_to_bind(err)
    end
    self.notices = info.notices or {}
    self:find_session(info.path, function(problem, id)
      self.is_binding = false
      if problem then
        return self:failed_to_bind(problem)
      end
      self:adopt(id)
    end)
  end)
end

---@private
---@param err basis.RpcError
function Chat:failed_to_bind(err)
  self.is_binding = false
  if not (err.data and err.data.kind == "connection_lost") then
    self.problem = say.words(err)
    say.error(self.problem)
  end
  self:changed()
end

---@private
---@param workspace string
---@param callback fun(err: basis.RpcError?, id: string?)
function Chat:find_session(workspace, callback)
  local function new(id)
    client.request(methods.session_new, { workspace = workspace, sessionId = id }, function(err, info)
      callback(err, info and info.sessionId)
    end)
  end
  if self.wanted then
    return callback(nil, self.wanted)
  elseif self.wanted == false then
    return new()
  end
  local last = require("basis.memory").last(workspace)
  if last then
    return callback(nil, last)
  end
  client.request(methods.session_list, { workspace = workspace, limit = 1 }, function(err, page)
    local newest = page and page.sessions[1]
    if err or newest then
      return callback(err, newest and newest.sessionId)
    end
    new()
  end)
end

---@private
---@param id string
function Chat:adopt(id)
  local other = M.of_session(id)
  if other and other ~= self then
    return require("basis.layout").merge(self, other)
  end
  self.problem = nil
  self.session = Session.new(id, {
    on_event = function(event)
      self.transcript:take(event)
    end,
    on_reset = function(snapshot)
      self.transcript:reset(snapshot)
    end,
    on_change = function()
      self:attached()
    end,
    on_gone = function(reason)
      self:gone(reason)
    end,
  })
  client.keep(self.session)
  self:changed()
end

---@private
function Chat:attached()
  local session = self.session
  if session and session.is_attached then
    if self.remembered ~= session.id then
      self.remembered, self.wanted = session.id, session.id
      say.event("SessionChanged", { session = session.id })
      require("basis.memory").remember(session.info.workspace, session.id)
    end
    for _, notice in ipairs(self.notices) do
      self.transcript:take({ type = "notice", message = notice })
    end
    self.notices = {}
    self:sync_draft()
    self:send_if_due()
  end
  self:changed()
end

--- The session can't be watched. One that was never written down is gone with the daemon that had it: begin another.
---@private
---@param reason string
function Chat:gone(reason)
  local session = self.session
  if not session then
    return
  end
  client.let_go(session)
  require("basis.asks").detached(session.id)
  require("basis.memory").forget(session.id)
  self.session, self.is_draft_known = nil, false
  if reason == "no_such_session" and (self.remembered or not self.is_explicit) then
    self.wanted = false
    self.paper:clear()
    self:bind()
  else
    self.problem = reason == "no_such_session" and "there is no session " .. session.id or reason
    say.error(self.problem)
  end
  self:changed()
end

--- Stop watching, and keep nothing on the screen.
function Chat:close()
  for index, chat in ipairs(chats) do
    if chat == self then
      table.remove(chats, index)
      break
    end
  end
  if self.session then
    self:keep_draft()
    client.let_go(self.session)
    require("basis.asks").detached(self.session.id)
  end
  for _, buffer in ipairs({ self.paper.buffer, self.prompt_buffer }) do
    if vim.api.nvim_buf_is_valid(buffer) then
      pcall(vim.api.nvim_buf_delete, buffer, { force = true })
    end
  end
end

-- --- the draft --------------------------------------------------------------------------------------------------------

---@private
function Chat:sync_draft()
  local session = self.session
  if self.is_draft_known then
    return self:keep_draft()
  end
  session:call(methods.session_draft, function(err, draft)
    if err or self.session ~= session then
      return
    end
    self.is_draft_known = true
    self.draft = draft.text
    local unsent = require("basis.memory").take_unsent(self.directory)
    local left = unsent or draft.text
    -- What was typed here meanwhile is newer than what was left behind.
    if vim.trim(self:text()) == "" and left ~= "" then
      self:set_text(left)
    else
      self:keep_draft()
    end
  end)
end

---@private
function Chat:keep_draft_soon()
  if self.is_draft_due then
    return
  end
  self.is_draft_due = true
  vim.defer_fn(function()
    self.is_draft_due = false
    self:keep_draft()
  end, DRAFT_AFTER_MS)
end

--- Give the daemon the draft, if it has another one.
---@private
function Chat:keep_draft()
  local text = vim.trim(self:text()) == "" and "" or self:text()
  local is_settled = self.is_draft_known and not self.is_sending
  if is_settled and self.session and self.session.is_attached and text ~= self.draft then
    local before = self.draft
    self.draft = text
    self.session:call(methods.session_draft, function(err)
      if err then
        self.draft = before
      end
    end, { text = text })
  end
end

--- The editor is about to end: give the daemon what it does not have yet.
function Chat:leave()
  local text = self:text()
  if self.is_sending or text == self.draft then
    return
  elseif client.state == "connected" and self.session and self.session.is_attached and self.is_draft_known then
    client.send_now(methods.session_draft, { sessionId = self.session.id, text = text })
  elseif vim.trim(text) ~= "" then
    require("basis.memory").keep_unsent(self.directory, text)
  end
end

-- --- prompts ----------------------------------------------------------------------------------------------------------

---@param attachment basis.Attachment
function Chat:attach(attachment)
  self.attachments[#self.attachments + 1] = attachment
  self:changed()
end

---@private
---@return boolean
function Chat:is_ready()
  return client.state == "connected" and self.session ~= nil and self.session.is_attached and not self.is_sending
end

--- Send what is in the prompt, now or as soon as there is a session to send it to.
---@param when_busy? "steer"|"queue"
---@param text? string instead of what is in the prompt, which stays
function Chat:send(when_busy, text)
  if text then
    local before = self:text()
    self.stash = vim.trim(before) ~= "" and before or self.stash
    self:set_text(text)
  end
  if vim.trim(self:text()) == "" and #self.attachments == 0 then
    return say.info("there is nothing to send")
  end
  self.when_busy = when_busy or require("basis.config").get().when_busy
  self.is_due = true
  self:connect()
  self:send_if_due()
  self:changed()
end

---@private
function Chat:send_if_due()
  if not self.is_due or not self:is_ready() then
    return
  end
  self.is_due = false
  local text, attachments = self:text(), self.attachments
  local input = {}
  for _, attachment in ipairs(attachments) do
    input[#input + 1] = attachment.block()
  end
  if vim.trim(text) ~= "" then
    input[#input + 1] = { type = "text", text = text }
  end
  if #input == 0 then
    return
  end
  self.is_sending, self.attachments = true, {}
  self:set_text(self.stash or "")
  self.stash = nil
  self.session:prompt(input, self.when_busy, function(err)
    self.is_sending = false
    if err then
      self.attachments = vim.list_extend(attachments, self.attachments)
      self:set_text(vim.trim(self:text()) == "" and text or text .. "\n" .. self:text())
      say.error(say.words(err))
      if err.data and err.data.kind == "no_such_session" then
        self:gone("no_such_session")
      end
    end
    self:keep_draft()
    self:changed()
  end)
end

-- --- what it says of itself -------------------------------------------------------------------------------------------

--- What to say instead of a state, while there is no connection or no session.
---@private
---@return string? words
---@return string? reason
function Chat:trouble()
  if client.state == "disconnected" then
    return "✗ disconnected", client.reason or "not connected yet"
  elseif client.state == "connecting" then
    return "… connecting", client.reason ~= "connecting" and client.reason or nil
  elseif self.session and self.session.is_removed then
    return "· closed", "the next prompt opens it again"
  elseif self.problem then
    return "✗ no session", self.problem
  end
end

---@private
function Chat:changed()
  local session = self.session
  local title = session and session.info and session.info.title or ""
  local _, reason = self:trouble()
  local top = title ~= "" and title or "new conversation"
  if not session and reason then
    top = reason
  elseif session and session.earlier then
    top = "earlier messages: <CR> on this line"
  end
  self.paper:set_top("── " .. top)
  require("basis.layout").update(self)
  require("basis.status").update()
end

--- The bar above the transcript, ready for 'winbar'.
---@return string
function Chat:bar()
  local trouble, reason = self:trouble()
  if trouble then
    return "%#BasisBanner#" .. plain.literal(" " .. trouble) .. "%<" .. plain.literal(reason and ": " .. reason or "") .. " "
  end
  local session = self.session
  local title = session and session.info and session.info.title or ""
  local words = require("basis.status").words(self)
  return plain.literal(" basis: " .. words) .. "%<" .. plain.literal(title ~= "" and " — " .. plain.one_line(title, 80) or "")
end

--- The bar above the prompt.
---@return string
function Chat:prompt_bar()
  local parts = { self.is_due and " prompt, sent as soon as possible" or " prompt (<CR> or <C-s> sends)" }
  for _, attachment in ipairs(self.attachments) do
    parts[#parts + 1] = "+" .. attachment.label
  end
  return plain.literal(table.concat(parts, "  "))
end

client.on_change(function()
  for _, chat in ipairs(chats) do
    if client.state ~= "connected" and chat.session then
      chat.session.is_attached = false
    end
    chat:bind()
    chat:changed()
  end
end)

require("basis.asks").on_change(function()
  for _, chat in ipairs(chats) do
    chat:changed()
  end
  require("basis.status").update()
end)

vim.api.nvim_create_autocmd("VimLeavePre", {
  group = vim.api.nvim_create_augroup("basis.chat", {}),
  callback = function()
    for _, chat in ipairs(chats) do
      chat:leave()
    end
  end,
})

return M
