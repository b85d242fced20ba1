--- Text from models, tools and files made safe to show: what would steer a terminal or mislead the eye becomes visible.
---
--- Owns which characters are harmless and how long a line may be. The same rules as `basisctl`'s, so that one transcript
--- reads the same everywhere.

local M = {}

--- Longest line put into a buffer, in bytes. Neovim redraws a whole line at a time, so a megabyte in one freezes it.
M.MAX_LINE_BYTES = 1000

---@param code integer
---@return string
local function utf8(code)
  return vim.fn.nr2char(code, true)
end

---@type table<string, string>
local control = { ["\127"] = "\226\144\161" }
for code = 0, 31 do
  if code ~= 9 and code ~= 10 then
    control[string.char(code)] = "\226\144" .. string.char(128 + code)
  end
end

-- C1 controls, soft hyphen, direction, invisible characters, tags.
local ranges = {
  { 0x80, 0x9F }, { 0xAD, 0xAD },
  { 0x61C, 0x61C }, { 0x200E, 0x200F }, { 0x202A, 0x202E }, { 0x2066, 0x2069 },
  { 0x115F, 0x1160 }, { 0x17B4, 0x17B5 }, { 0x180E, 0x180E }, { 0x200B, 0x200B }, { 0x2028, 0x2029 },
  { 0x2060, 0x2064 }, { 0x206A, 0x206F }, { 0x3164, 0x3164 }, { 0xFEFF, 0xFEFF }, { 0xFFA0, 0xFFA0 },
  { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE007F },
}

---@type table<string, string>?
local hidden

---@return table<string, string>
local function hidden_characters()
  if not hidden then
    hidden = {}
    for _, range in ipairs(ranges) do
      for code = range[1], range[2] do
        hidden[utf8(code)] = ("<U+%04X>"):format(code)
      end
    end
  end
  return hidden
end

--- Every control, direction and invisible character replaced by a visible name. Newlines and tabs stay.
---@param text string
---@return string
function M.visible(text)
  if text:find("[%z\1-\8\11-\31\127]") then
    text = text:gsub("\r\n", "\n"):gsub("[%z\1-\8\11-\31\127]", control)
  end
  if text:find("[\194\216\225-\227\239\243]") then
    -- A sequence that is not in the table stays as it is.
    text = text:gsub("[\194\216\225-\227\239\243][\128-\191]+", hidden_characters())
  end
  return text
end

--- `visible`, on one line of at most `max` bytes.
---@param text any
---@param max? integer
---@return string
function M.one_line(text, max)
  text = M.visible(tostring(text)):gsub("\n", "⏎"):gsub("\t", " ")
  if max and #text > max then
    return text:sub(1, M.boundary(text, math.max(max - 3, 0))) .. "…"
  end
  return text
end

--- The largest position not above `at` after which `text` can be cut without cutting a character.
---@param text string
---@param at integer
---@return integer
function M.boundary(text, at)
  local cut = at
  while cut > 0 and cut > at - 4 do
    local byte = text:byte(cut + 1)
    if not byte or byte < 0x80 or byte >= 0xC0 then
      return cut
    end
    cut = cut - 1
  end
  return at
end

--- `visible`, as lines for a buffer. What is longer than a line may be goes on in the next one.
---@param text string
---@return string[]
function M.lines(text)
  local lines = {}
  for _, line in ipairs(vim.split(M.visible(text), "\n", { plain = true })) do
    local from = 1
    while #line - from + 1 > M.MAX_LINE_BYTES do
      local to = M.boundary(line, from + M.MAX_LINE_BYTES - 1)
      lines[#lines + 1] = line:sub(from, to)
      from = to + 1
    end
    lines[#lines + 1] = from == 1 and line or line:sub(from)
  end
  return lines
end

--- `text` for an option that Neovim expands, such as 'winbar'.
---@param text string
---@return string
function M.literal(text)
  return (M.one_line(text):gsub("%%", "%%%%"))
end

---@param text string
---@param at integer
---@return integer? length of the well-formed UTF-8 sequence that starts there
local function sequence(text, at)
  local first, second = text:byte(at, at + 1)
  local length = first < 0x80 and 1 or first < 0xC2 and 0 or first < 0xE0 and 2 or first < 0xF0 and 3 or first < 0xF5 and 4 or 0
  if length < 2 then
    return length == 1 and 1 or nil
  end
  for index = at + 1, at + length - 1 do
    local byte = text:byte(index)
    if not byte or byte < 0x80 or byte > 0xBF then
      return nil
    end
  end
  local wrong = (first == 0xE0 and second < 0xA0)
    or (first == 0xED and second > 0x9F)
    or (first == 0xF0 and second < 0x90)
    or (first == 0xF4 and second > 0x8F)
  return not wrong and length or nil
end

--- `text` as valid UTF-8: a byte that is none becomes U+FFFD. Buffers and environments may hold anything; a frame may not.
---@param text string
---@return string
function M.valid_utf8(text)
  local at = text:find("[\128-\255]")
  if not at then
    return text
  end
  local parts, from = {}, 1
  while at do
    local length = sequence(text, at)
    if not length then
      parts[#parts + 1] = text:sub(from, at - 1)
      parts[#parts + 1] = "\239\191\189"
      from = at + 1
    end
    at = text:find("[\128-\255]", at + (length or 1))
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end

return M
