--- The buffer a transcript is painted on: blocks of lines, in order, each with a head and a text that may still grow.
---
--- Owns when and how the buffer changes: what has come is painted together, a bounded amount at a time, and neither cursor,
--- view, focus, undo nor registers notice. A window follows the end only while its cursor is on the last line.

local plain = require("basis.plain")

local uv = vim.uv

local M = {}

--- Milliseconds between paintings, and of painting at a time.
local PAINT_EVERY_MS, SLICE_MS = 25, 6
--- Bytes of text put into the buffer in one step.
local STEP_BYTES = 16384

--- Bytes of transcript up to which it is highlighted as Markdown: a parser that reads a long paragraph again after every
--- word takes more time than all the rest.
local MAX_MARKDOWN_BYTES = 262144

local namespace = vim.api.nvim_create_namespace("basis")

---@class basis.Block
---@field key string
---@field head string[] lines above the text
---@field head_group? string highlight group of the head
---@field text_group? string highlight group of the text
---@field words? string what a tool call is called
---@field is_diff boolean whether the text's lines are coloured as a diff's
---@field text string[] pieces of all its text
---@field private next integer first piece that is not painted, or not all of it
---@field private from integer first byte in it that is not painted
---@field private is_stale boolean whether what is painted is void
---@field private rows integer lines painted
---@field private tail string last painted line of the text
---@field private has_text boolean whether any of its text is painted
---@field private is_gone boolean

---@class basis.Paper
---@field buffer integer
---@field blocks basis.Block[]
---@field private by_key table<string, basis.Block>
---@field private dirty table<basis.Block, true>
---@field private top string
---@field private is_scheduled boolean
---@field private bytes integer painted since the buffer was empty
local Paper = {}
Paper.__index = Paper

---@return basis.Paper
function M.new()
  local self = setmetatable({ buffer = -1, blocks = {}, by_key = {}, dirty = {}, top = "", is_scheduled = false, bytes = 0 }, Paper)
  self:make_buffer()
  return self
end

--- Whether the buffer is still there; `:bdelete` and `:bwipeout` are anybody's right.
---@return boolean
function Paper:has_buffer()
  return vim.api.nvim_buf_is_valid(self.buffer) and vim.api.nvim_buf_is_loaded(self.buffer)
end

--- Make the buffer if it is not there, and paint all of it again.
function Paper:make_buffer()
  if self:has_buffer() then
    return
  end
  if vim.api.nvim_buf_is_valid(self.buffer) then
    pcall(vim.api.nvim_buf_delete, self.buffer, { force = true })
  end
  self.buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(self.buffer, ("basis://chat/%d"):format(self.buffer))
  local options = vim.bo[self.buffer]
  options.bufhidden, options.swapfile, options.undolevels, options.modeline = "hide", false, -1, false
  options.modifiable = false
  options.filetype = "basis-chat"
  for _, block in ipairs(self.blocks) do
    block.rows, block.is_stale = 0, true
    self.dirty[block] = true
  end
  self:dress()
  self:set_top(self.top)
  self:paint_soon()
end

--- The buffer is empty: highlight what comes, up to a size.
---@private
function Paper:dress()
  self.bytes = 0
  local looks = require("basis.looks")
  if require("basis.config").get().markdown then
    looks.markdown(self.buffer)
  end
end

--- The line above all blocks.
---@param text string
function Paper:set_top(text)
  self.top = plain.one_line(text, plain.MAX_LINE_BYTES)
  if self:has_buffer() then
    self:write(0, 1, { self.top })
    self:colour(0, 1, "BasisTitle")
  end
end

---@param key string
---@return basis.Block?
function Paper:find(key)
  return self.by_key[key]
end

--- The block of that key, made at the end (or at `index`) if there is none.
---@param key string
---@param index? integer
---@return basis.Block
function Paper:block(key, index)
  local block = self.by_key[key]
  if not block then
    block = {
      key = key, head = {}, is_diff = false, text = {}, next = 1, from = 1,
      is_stale = false, rows = 0, tail = "", has_text = false, is_gone = false,
    }
    self.by_key[key] = block
    table.insert(self.blocks, index or #self.blocks + 1, block)
  end
  return block
end

--- Give a block another head.
---@param block basis.Block
---@param head string[]
---@param group? string
function Paper:set_head(block, head, group)
  local lines = {}
  for _, line in ipairs(head) do
    lines[#lines + 1] = plain.one_line(line, plain.MAX_LINE_BYTES)
  end
  if vim.deep_equal(lines, block.head) and group == block.head_group then
    return
  end
  block.head, block.head_group, block.is_stale = lines, group, true
  self:touch(block)
end

--- Add to the end of a block's text.
---@param block basis.Block
---@param text string
function Paper:feed(block, text)
  if text ~= "" then
    block.text[#block.text + 1] = text
    self:touch(block)
  end
end

--- Make `text` a block's whole text. Nothing is painted when it is that already.
---@param block basis.Block
---@param text string
function Paper:set_text(block, text)
  if table.concat(block.text) ~= text then
    block.text, block.is_stale = { text }, true
    self:touch(block)
  end
end

---@param key string
function Paper:drop(key)
  local block = self.by_key[key]
  if block then
    self.by_key[key] = nil
    block.is_gone, block.head, block.text, block.is_stale = true, {}, {}, true
    self:touch(block)
  end
end

function Paper:clear()
  self.blocks, self.by_key, self.dirty = {}, {}, {}
  if self:has_buffer() then
    self:write(1, -1, {})
    if self.bytes > MAX_MARKDOWN_BYTES then
      self:dress()
    end
  end
end

--- Row (from 0) of a block's first line.
---@param wanted basis.Block
---@return integer
function Paper:row(wanted)
  local row = 1
  for _, block in ipairs(self.blocks) do
    if block == wanted then
      break
    end
    row = row + block.rows
  end
  return row
end

-- --- painting ---------------------------------------------------------------------------------------------------------

---@private
---@param block basis.Block
function Paper:touch(block)
  self.dirty[block] = true
  self:paint_soon()
end

---@private
---@param ms? integer
function Paper:paint_soon(ms)
  if self.is_scheduled then
    return
  end
  self.is_scheduled = true
  vim.defer_fn(function()
    self.is_scheduled = false
    self:paint()
  end, ms or PAINT_EVERY_MS)
end

--- Windows that show the end and follow it. One in which somebody is selecting text or elsewhere stays where it is.
---@private
---@return integer[]
function Paper:followers()
  local last = vim.api.nvim_buf_line_count(self.buffer)
  local mode = vim.api.nvim_get_mode().mode
  local current = vim.api.nvim_get_current_win()
  return vim.tbl_filter(function(window)
    local is_moving = window ~= current or mode == "n" or mode == "c"
    return is_moving and vim.api.nvim_win_get_cursor(window)[1] >= last
  end, vim.fn.win_findbuf(self.buffer))
end

---@private
function Paper:paint()
  if not self:has_buffer() or next(self.dirty) == nil then
    return
  end
  local deadline = uv.hrtime() + SLICE_MS * 1e6
  local followers = self:followers()
  local ok, fault = pcall(function()
    while next(self.dirty) and uv.hrtime() < deadline do
      self:paint_step()
    end
  end)
  local last = vim.api.nvim_buf_line_count(self.buffer)
  for _, window in ipairs(followers) do
    pcall(vim.api.nvim_win_set_cursor, window, { last, 0 })
  end
  if not ok then
    -- The text is locked for a moment (a mapping's expression runs, say): what is dirty stays so.
    require("basis.say").log("painting waits: " .. tostring(fault))
    self:paint_soon(200)
  elseif next(self.dirty) then
    self:paint_soon(1)
  end
end

--- Paint a bounded part of the first block that needs it.
---@private
function Paper:paint_step()
  local row = 1
  for index, block in ipairs(self.blocks) do
    if self.dirty[block] then
      if block.is_gone then
        self:write(row, row + block.rows, {})
        table.remove(self.blocks, index)
        self.dirty[block] = nil
      elseif block.is_stale or block.rows == 0 then
        self:paint_afresh(row, block)
      else
        self:paint_text(row, block)
      end
      return
    end
    row = row + block.rows
  end
  -- Blocks that were cleared away in the meantime.
  self.dirty = {}
end

--- What comes next of a block's text: at least a character, and at most about `STEP_BYTES`; empty when all is painted.
---@param block basis.Block
---@return string text
---@return integer size
local function take(block)
  local parts, size = {}, 0
  while block.next <= #block.text and size < STEP_BYTES do
    local piece = block.text[block.next]
    local cut = math.min(#piece, block.from - 1 + STEP_BYTES)
    if cut < #piece then
      cut = plain.boundary(piece, cut)
    end
    local part = piece:sub(block.from, cut)
    parts[#parts + 1], size = part, size + #part
    if cut < #piece then
      block.from = cut + 1
    else
      block.next, block.from = block.next + 1, 1
    end
  end
  return table.concat(parts), size
end

--- Paint the head and the beginning of the text in one step, so that a cursor in them keeps its place.
---@private
---@param row integer
---@param block basis.Block
function Paper:paint_afresh(row, block)
  block.next, block.from = 1, 1
  local text, size = take(block)
  self:count(size)
  local body = text == "" and {} or plain.lines(text)
  self:write(row, row + block.rows, vim.list_extend(vim.list_slice(block.head), body))
  block.rows, block.tail, block.has_text, block.is_stale = #block.head + #body, body[#body] or "", #body > 0, false
  self:colour(row, row + #block.head, block.head_group)
  self:colour_text(row + #block.head, body, block)
  self.dirty[block] = block.next <= #block.text or nil
end

---@private
---@param row integer
---@param block basis.Block
function Paper:paint_text(row, block)
  local text, size = take(block)
  self:count(size)
  self.dirty[block] = block.next <= #block.text or nil
  if text == "" then
    return
  end
  local from, before = row + block.rows, 0
  local lines
  if block.has_text then
    -- A line that is as long as one may be is closed: what follows goes below it.
    lines = plain.lines(text)
    if #block.tail + #lines[1] <= plain.MAX_LINE_BYTES then
      lines[1] = block.tail .. lines[1]
      from, before = from - 1, 1
    end
  else
    lines = plain.lines(text)
  end
  self:write(from, from + before, lines)
  self:colour_text(from, lines, block)
  block.rows = block.rows - before + #lines
  block.tail, block.has_text = lines[#lines], true
end

---@private
---@param size integer bytes that are about to be painted
function Paper:count(size)
  local before = self.bytes
  self.bytes = before + size
  if before <= MAX_MARKDOWN_BYTES and self.bytes > MAX_MARKDOWN_BYTES then
    require("basis.looks").no_markdown(self.buffer)
  end
end

---@private
---@param from integer
---@param to integer
---@param lines string[]
function Paper:write(from, to, lines)
  vim.api.nvim_buf_clear_namespace(self.buffer, namespace, from, to)
  local options = vim.bo[self.buffer]
  options.modifiable = true
  local ok, fault = pcall(vim.api.nvim_buf_set_lines, self.buffer, from, to, false, lines)
  options.modifiable = false
  if not ok then
    error(fault, 0)
  end
end

---@private
---@param from integer
---@param to integer
---@param group? string
function Paper:colour(from, to, group)
  if group then
    for row = from, to - 1 do
      vim.api.nvim_buf_set_extmark(self.buffer, namespace, row, 0, { line_hl_group = group })
    end
  end
end

---@private
---@param from integer
---@param lines string[]
---@param block basis.Block
function Paper:colour_text(from, lines, block)
  if block.is_diff then
    M.colour_diff(self.buffer, from, lines)
  elseif block.text_group then
    self:colour(from, from + #lines, block.text_group)
  end
end

local DIFF_GROUPS = { ["+"] = "BasisAdded", ["-"] = "BasisRemoved", ["@"] = "BasisHunk" }

--- Colour `lines` of a diff that begin at `row`.
---@param buffer integer
---@param row integer
---@param lines string[]
function M.colour_diff(buffer, row, lines)
  for index, line in ipairs(lines) do
    local group = DIFF_GROUPS[line:match("^%s*(.)") or ""]
    if group then
      vim.api.nvim_buf_set_extmark(buffer, namespace, row + index - 1, 0, { line_hl_group = group })
    end
  end
end

return M
