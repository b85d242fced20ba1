--- BLAKE2b with an 8-byte digest, for socket paths that are too long to bind: every client must find the same short one.
---
--- Words of 64 bits are pairs of 32-bit halves (high, low), because numbers here are doubles.

local bit = require("bit")
local band, bor, bxor, lshift, rshift, tobit = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift, bit.tobit

local IV = {
  0x6a09e667, 0xf3bcc908, 0xbb67ae85, 0x84caa73b, 0x3c6ef372, 0xfe94f82b, 0xa54ff53a, 0x5f1d36f1,
  0x510e527f, 0xade682d1, 0x9b05688c, 0x2b3e6c1f, 0x1f83d9ab, 0xfb41bd6b, 0x5be0cd19, 0x137e2179,
}

local SIGMA = {
  { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
  { 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
  { 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
  { 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
  { 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
  { 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
  { 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
  { 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
  { 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
  { 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
}

---@param n number
---@return number the same 32 bits, not negative
local function unsigned(n)
  return n % 0x100000000
end

--- v[a] = v[a] + v[b] + (high, low)
local function add(v, a, b, high, low)
  local sum = unsigned(v[a + 1]) + unsigned(v[b + 1]) + unsigned(low)
  v[a] = tobit(v[a] + v[b] + high + math.floor(sum / 0x100000000))
  v[a + 1] = tobit(sum % 0x100000000)
end

--- v[a] = (v[a] xor v[b]) rotated right
local function xor_rotate(v, a, b, count)
  local high, low = bxor(v[a], v[b]), bxor(v[a + 1], v[b + 1])
  if count >= 32 then
    high, low, count = low, high, count - 32
  end
  if count > 0 then
    high, low = bor(rshift(high, count), lshift(low, 32 - count)), bor(rshift(low, count), lshift(high, 32 - count))
  end
  v[a], v[a + 1] = high, low
end

local function mix(v, a, b, c, d, m, x, y)
  a, b, c, d, x, y = 2 * a + 1, 2 * b + 1, 2 * c + 1, 2 * d + 1, 2 * x + 1, 2 * y + 1
  add(v, a, b, m[x], m[x + 1])
  xor_rotate(v, d, a, 32)
  add(v, c, d, 0, 0)
  xor_rotate(v, b, c, 24)
  add(v, a, b, m[y], m[y + 1])
  xor_rotate(v, d, a, 16)
  add(v, c, d, 0, 0)
  xor_rotate(v, b, c, 63)
end

---@param text string
---@param at integer
---@return integer the four bytes there, least significant first
local function word(text, at)
  local a, b, c, d = text:byte(at, at + 3)
  return bor(a, lshift(b, 8), lshift(c, 16), lshift(d, 24))
end

local function compress(h, block, counted, is_last)
  local v, m = {}, {}
  for index = 1, 16 do
    v[index], v[index + 16] = h[index], tobit(IV[index])
  end
  v[26] = bxor(v[26], counted)
  if is_last then
    v[29], v[30] = bxor(v[29], -1), bxor(v[30], -1)
  end
  for index = 0, 15 do
    m[2 * index + 1], m[2 * index + 2] = word(block, 8 * index + 5), word(block, 8 * index + 1)
  end
  for round = 0, 11 do
    local s = SIGMA[round % 10 + 1]
    for index = 0, 3 do
      mix(v, index, index + 4, index + 8, index + 12, m, s[2 * index + 1], s[2 * index + 2])
    end
    for index = 0, 3 do
      mix(v, index, (index + 1) % 4 + 4, (index + 2) % 4 + 8, (index + 3) % 4 + 12, m, s[2 * index + 9], s[2 * index + 10])
    end
  end
  for index = 1, 16 do
    h[index] = bxor(h[index], v[index], v[index + 16])
  end
end

local M = {}

--- The digest of `text` (below 4 GiB) as 16 hexadecimal digits.
---@param text string
---@return string
function M.hex8(text)
  local h = {}
  for index = 1, 16 do
    h[index] = tobit(IV[index])
  end
  h[2] = bxor(h[2], 0x01010008) -- fanout 1, depth 1, no key, 8 bytes of digest
  local at = 1
  while #text - at + 1 > 128 do
    compress(h, text:sub(at, at + 127), at + 127, false)
    at = at + 128
  end
  compress(h, text:sub(at) .. ("\0"):rep(128 - (#text - at + 1)), #text, true)
  local digits = {}
  for _, half in ipairs({ h[2], h[1] }) do
    for shift = 0, 24, 8 do
      digits[#digits + 1] = ("%02x"):format(band(rshift(half, shift), 0xFF))
    end
  end
  return table.concat(digits)
end

return M
