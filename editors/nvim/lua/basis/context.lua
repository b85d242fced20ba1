--- What goes along with a prompt: files and selections, as the editor has them, saved or not.

local M = {}

---@class basis.Attachment
---@field label string
---@field block fun(): basis.InputBlock? made when the prompt is sent; nil when the buffer is gone

---@param text string
---@return integer length in UTF-16 code units, as LSP counts
function M.utf16_length(text)
  local _, continued = text:gsub("[\128-\191]", "")
  local _, wide = text:gsub("[\240-\247]", "")
  return #text - continued + wide
end

---@param buffer integer
---@return string uri, or the buffer's name where it has no file
local function uri_of(buffer)
  local name = vim.api.nvim_buf_get_name(buffer)
  if name == "" then
    return ("untitled:buffer-%d"):format(buffer)
  end
  return name:match("^%a[%w+.-]*://") and name or vim.uri_from_fname(name)
end

---@param buffer integer
---@return string
local function short_name(buffer)
  local name = vim.api.nvim_buf_get_name(buffer)
  return name == "" and "[No Name]" or vim.fn.fnamemodify(name, ":~:.")
end

---@param buffer integer
---@return string
local function text_of(buffer)
  local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n")
  return vim.bo[buffer].endofline and text .. "\n" or text
end

--- Whether what the agent would read from the disk is not what the editor shows.
---@param buffer integer
---@return boolean
local function is_unsaved(buffer)
  local name = vim.api.nvim_buf_get_name(buffer)
  return vim.bo[buffer].modified or name == "" or vim.bo[buffer].buftype ~= "" or not vim.uv.fs_stat(name)
end

--- A whole buffer: its file's name, and its text if that is not what is on the disk.
---@param buffer integer
---@return basis.Attachment
function M.file(buffer)
  return {
    label = short_name(buffer),
    block = function()
      if not vim.api.nvim_buf_is_loaded(buffer) then
        return nil
      end
      ---@type basis.ResourceBlock
      return { type = "resource", uri = uri_of(buffer), text = is_unsaved(buffer) and text_of(buffer) or nil }
    end,
  }
end

---@class basis.Region
---@field first integer row from 0
---@field last integer
---@field from integer byte in the first row, from 0
---@field to? integer byte in the last row, exclusive; nil for whole lines

---@param region basis.Region
---@param lines string[]
---@return basis.Range
local function range_of(region, lines)
  local last = lines[#lines]
  return {
    start = { line = region.first, character = M.utf16_length(lines[1]:sub(1, region.from)) },
    ["end"] = { line = region.last, character = M.utf16_length(region.to and last:sub(1, region.to) or last) },
  }
end

--- The lines `first` to `last` (from 1) of a buffer, as they are now. When they are those of the last character-wise visual
--- selection, its exact text.
---@param buffer integer
---@param first integer
---@param last integer
---@return basis.Attachment
function M.selection(buffer, first, last)
  ---@type basis.Region
  local region = { first = first - 1, last = last - 1, from = 0 }
  local start, stop = vim.api.nvim_buf_get_mark(buffer, "<"), vim.api.nvim_buf_get_mark(buffer, ">")
  local lines = vim.api.nvim_buf_get_lines(buffer, first - 1, last, false)
  local is_visual = buffer == vim.api.nvim_get_current_buf() and vim.fn.visualmode() == "v"
  if is_visual and start[1] == first and stop[1] == last then
    local line = lines[#lines]
    region.from = math.min(start[2], #lines[1])
    local at = math.min(stop[2], math.max(#line - 1, 0))
    region.to = line == "" and 0 or at + 1 + vim.str_utf_end(line, at + 1)
  end
  local range = range_of(region, lines)
  local text = vim.list_slice(lines)
  if region.to then
    text[#text] = text[#text]:sub(1, region.to)
    text[1] = text[1]:sub(region.from + 1)
  end
  ---@type basis.SelectionBlock
  local block = { type = "selection", uri = uri_of(buffer), range = range, text = table.concat(text, "\n") }
  local lines_label = first == last and tostring(first) or ("%d-%d"):format(first, last)
  return {
    label = ("%s:%s"):format(short_name(buffer), lines_label),
    block = function()
      return block
    end,
  }
end

return M
