--- The report about MCP servers.
local M = {}

local CONSENT = { new = 'not approved', changed = 'changed since you approved it' }

--- Return nil for JSON null.
local function known(value)
  return value ~= vim.NIL and value or nil
end

---@param server table
---@return string[]
local function describe(server)
  local state = CONSENT[server.consent] or server.state
  local lines = { ('%s: %s (%s)'):format(server.name, state, server.place) }
  for line in vim.gsplit(server.description, '\n') do
    table.insert(lines, '  ' .. line)
  end
  table.insert(lines, '  Hash: ' .. server.fingerprint)
  if known(server.startSeconds) then
    table.insert(lines, ('  Started in %.2f s, protocol %s'):format(server.startSeconds, known(server.era) or '?'))
  end
  if known(server.lastError) then
    table.insert(lines, '  Last error: ' .. server.lastError)
  end
  for _, tool in ipairs(server.tools) do
    local name = known(tool.modelName) or (tool.name .. ' (left out)')
    table.insert(lines, ('  %s: %s %s'):format(name, known(tool.pin) or '', (known(tool.hash) or ''):sub(1, 16)))
  end
  return lines
end

--- Format the report as lines of text.
---@param report table
---@return string[]
function M.told(report)
  local lines = {}
  for _, server in ipairs(report.servers) do
    vim.list_extend(lines, describe(server))
  end
  for _, name in ipairs(report.disabled) do
    table.insert(lines, name .. ': off, `enabled` is false')
  end
  for _, problem in ipairs(report.problems) do
    table.insert(lines, 'problem: ' .. problem)
  end
  return #lines > 0 and lines or { 'There are no MCP servers.' }
end

return M
