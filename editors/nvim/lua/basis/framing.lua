--- Content-Length framing without I/O: bytes in, message bodies out.

local M = {}

M.MAX_FRAME_BYTES = 64 * 1024 * 1024
M.MAX_HEADER_BYTES = 8 * 1024

---@param body string
---@return string
function M.encode(body)
  return ("Content-Length: %d\r\n\r\n%s"):format(#body, body)
end

---@class basis.Decoder
---@field private chunks string[] of the frame that has begun
---@field private size integer
---@field private need integer? bytes of the body, once its header was read
local Decoder = {}
Decoder.__index = Decoder

---@return basis.Decoder
function M.decoder()
  return setmetatable({ chunks = {}, size = 0, need = nil }, Decoder)
end

---@param header string
---@return integer? length
---@return string? fault
local function content_length(header)
  for line in vim.gsplit(header, "\r\n", { plain = true }) do
    local name, value = line:match("^([^:]+):%s*(.-)%s*$")
    if not name then
      return nil, "header line without a colon"
    elseif name:lower() == "content-length" then
      local length = value:match("^%d+$") and #value <= 12 and tonumber(value)
      if not length then
        return nil, "Content-Length is not a number"
      elseif length > M.MAX_FRAME_BYTES then
        return nil, ("a frame of %d bytes is too large"):format(length)
      end
      return length
    end
  end
  return nil, "no Content-Length header"
end

--- Take the next chunk and return every body that is now complete.
--- A fault means that nothing after it can be trusted: close the connection.
---@param data string
---@return string[] bodies
---@return string? fault
function Decoder:feed(data)
  self.chunks[#self.chunks + 1] = data
  self.size = self.size + #data
  local bodies = {}
  -- Pieces of a long body are only counted until it is whole: joining them each time would take quadratic time.
  if self.need and self.size < self.need then
    return bodies
  end
  local buffer, from = table.concat(self.chunks), 1
  local fault
  while true do
    if not self.need then
      local stop = buffer:find("\r\n\r\n", from, true)
      if not stop then
        fault = #buffer - from + 1 > M.MAX_HEADER_BYTES and "header block is longer than 8 KiB" or nil
        break
      end
      self.need, fault = content_length(buffer:sub(from, stop - 1))
      if fault then
        break
      end
      from = stop + 4
    end
    if #buffer - from + 1 < self.need then
      break
    end
    bodies[#bodies + 1] = buffer:sub(from, from + self.need - 1)
    from = from + self.need
    self.need = nil
  end
  self.chunks = { buffer:sub(from) }
  self.size = #buffer - from + 1
  return bodies, fault
end

return M
