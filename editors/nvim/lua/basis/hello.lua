--- What this editor says of itself, and what of its environment the daemon is given.

local M = {}

local uv = vim.uv

M.VERSION = "0.1.0"

---@type string?
local client_id

--- Stable for this process, whatever happens to its connections.
---@return string
function M.client_id()
  if not client_id then
    local random = uv.random(6)
    client_id = ("nvim-%d-%s"):format(uv.os_getpid(), vim.text and vim.text.hexencode(random) or tostring(uv.hrtime()))
  end
  return client_id
end

--- Params of `initialize`.
---@return basis.InitializeParams
function M.params()
  ---@type basis.ClientHello
  local hello = {
    protocolVersions = { require("basis.protocol_gen").PROTOCOL_VERSION },
    client = { name = "nvim@" .. uv.os_gethostname(), version = M.VERSION, kind = "nvim" },
    clientId = M.client_id(),
    can = { approve = true, notify = true },
  }
  return { processId = uv.os_getpid(), capabilities = { experimental = { basis = hello } } }
end

--- Set by Neovim for itself; a command that the agent runs must not take them for the person's own.
local OWN = { VIM = true, VIMRUNTIME = true, MYVIMRC = true, NVIM = true, NVIM_LISTEN_ADDRESS = true, NVIM_LOG_FILE = true }

--- The environment of this editor, as `basis/workspace/open` takes it.
---@return table<string, string>
function M.environment()
  local environment = {}
  for name, value in pairs(vim.fn.environ()) do
    if not OWN[name] then
      environment[name] = value
    end
  end
  return environment
end

return M
