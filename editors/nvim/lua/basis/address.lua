--- Where the daemon is found: data directory, socket and log, by the same rule as every other client of it.

local M = {}

local uv = vim.uv

---@param name string
---@return string
local function env(name)
  return uv.os_getenv(name) or ""
end

---@return boolean
local function is_mac()
  return uv.os_uname().sysname == "Darwin"
end

---@param path string
---@return boolean
local function is_absolute(path)
  return path:sub(1, 1) == "/"
end

---@param path string
---@return string absolute, without `.`, `..` and doubled slashes
local function absolute(path)
  if not is_absolute(path) then
    path = uv.cwd() .. "/" .. path
  end
  local parts = {}
  for part in path:gmatch("[^/]+") do
    if part == ".." then
      parts[#parts] = nil
    elseif part ~= "." then
      parts[#parts + 1] = part
    end
  end
  return "/" .. table.concat(parts, "/")
end

---@return string?
local function runtime_dir()
  if is_mac() then
    return nil
  end
  for _, candidate in ipairs({ env("XDG_RUNTIME_DIR"), "/run/user/" .. uv.getuid() }) do
    local stat = is_absolute(candidate) and uv.fs_stat(candidate)
    if stat and stat.type == "directory" and uv.fs_access(candidate, "WX") then
      return candidate
    end
  end
end

---@return integer longest path that can be bound, in bytes
local function max_socket_path_bytes()
  return is_mac() and 103 or 107
end

---@param path string
---@return string
local function bindable(path)
  if #path <= max_socket_path_bytes() then
    return path
  end
  local name = vim.fn.sha256(path):sub(1, 16) .. ".sock"
  local runtime = runtime_dir()
  local short = runtime and vim.fs.joinpath(runtime, "basis", name)
  if short and #short <= max_socket_path_bytes() then
    return short
  end
  return ("/tmp/basis-%d/%s"):format(uv.getuid(), name)
end

--- The per-user data directory. Raises when there is none.
---@return string
function M.data_dir()
  local named = vim.trim(env("BASIS_DATA_DIR"))
  if named ~= "" then
    if not is_absolute(named) then
      error("BASIS_DATA_DIR must be an absolute path, not " .. named, 0)
    end
    return named
  end
  if is_absolute(env("XDG_DATA_HOME")) then
    return vim.fs.joinpath(env("XDG_DATA_HOME"), "basis")
  end
  local home = env("HOME")
  if not is_absolute(home) then
    error("there is no home directory: set BASIS_DATA_DIR to an absolute path", 0)
  end
  return is_mac() and home .. "/Library/Application Support/basis" or vim.fs.joinpath(home, ".local/share/basis")
end

--- The daemon's socket. Raises when there is no place for one.
---@return string
function M.socket()
  local named = vim.trim(env("BASIS_SOCKET"))
  if named ~= "" then
    return bindable(absolute(named))
  end
  local runtime = vim.trim(env("BASIS_DATA_DIR")) == "" and runtime_dir()
  if runtime then
    return bindable(vim.fs.joinpath(runtime, "basis", "daemon.sock"))
  end
  return bindable(vim.fs.joinpath(M.data_dir(), "run", "daemon.sock"))
end

--- The daemon's log. Raises as `data_dir` does.
---@return string
function M.log()
  return vim.fs.joinpath(M.data_dir(), "log", "daemon.log")
end

--- Whether a listener at `path` may be given this editor's environment: the socket must be ours, in a directory in which
--- nobody else could have put another in its place.
---@param path string
---@return string? fault
function M.why_foreign(path)
  local uid = uv.getuid()
  local socket = uv.fs_lstat(path)
  if socket and socket.uid ~= uid then
    return ("%s belongs to user %d, not to you"):format(path, socket.uid)
  end
  local directory = uv.fs_stat(vim.fs.dirname(path))
  if directory and directory.uid ~= uid and directory.uid ~= 0 then
    return ("%s belongs to user %d, not to you"):format(vim.fs.dirname(path), directory.uid)
  end
end

return M
