--- Which session was last looked at in which workspace, so that the next Neovim comes back to it; and prompts that could not
--- be left with the daemon because there was none.

local M = {}

local LAST, UNSENT = "last.json", "unsent.json"

---@param name string
---@return string
local function path(name)
  return vim.fs.joinpath(vim.fn.stdpath("state") --[[@as string]], "basis", name)
end

---@param name string
---@return table<string, string> texts by workspace or directory
local function read(name)
  local file = io.open(path(name), "rb")
  if not file then
    return {}
  end
  local ok, known = pcall(vim.json.decode, file:read("*a"))
  file:close()
  return ok and type(known) == "table" and known or {}
end

---@param name string
---@param known table<string, string>
local function write(name, known)
  vim.fn.mkdir(vim.fs.dirname(path(name)), "p", tonumber("700", 8))
  local temporary = ("%s.%d"):format(path(name), vim.uv.os_getpid())
  local file = io.open(temporary, "wb")
  if file then
    file:write(vim.json.encode(next(known) and known or vim.empty_dict()))
    file:close()
    vim.uv.fs_rename(temporary, path(name))
  end
end

---@param workspace string
---@return string?
function M.last(workspace)
  local id = read(LAST)[workspace]
  return type(id) == "string" and id or nil
end

---@param workspace string
---@param id string
function M.remember(workspace, id)
  local known = read(LAST)
  if known[workspace] ~= id then
    known[workspace] = id
    write(LAST, known)
  end
end

---@param id string
function M.forget(id)
  local known = read(LAST)
  for workspace, each in pairs(known) do
    if each == id then
      known[workspace] = nil
      write(LAST, known)
    end
  end
end

--- Keep a prompt that nobody else has.
---@param directory string
---@param text string
function M.keep_unsent(directory, text)
  local known = read(UNSENT)
  known[directory] = text
  write(UNSENT, known)
end

--- The prompt kept for a directory, which is forgotten with this.
---@param directory string
---@return string?
function M.take_unsent(directory)
  local known = read(UNSENT)
  local text = known[directory]
  if text then
    known[directory] = nil
    write(UNSENT, known)
  end
  return text
end

return M
