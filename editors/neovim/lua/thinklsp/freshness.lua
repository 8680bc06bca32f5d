--- The buffer versions that Neovim's diagnostics belong to. Neovim reports diagnostics without a version.
local M = {}

local PATIENCE = 1500 -- milliseconds

---@type table<integer, integer> the latest version of each buffer for which a server or linter reported diagnostics
local versions = {}
---@type table<fun(), true> callbacks to call after new diagnostics
local waiting = {}

--- Return the version of a buffer that Neovim has sent to the servers.
---@param bufnr integer
---@return integer
local function present(bufnr)
  return vim.lsp.util.buf_versions[bufnr] or vim.b[bufnr].changedtick
end

---@param bufnr integer
---@return integer? version nil if there were no diagnostics for the buffer
function M.of(bufnr)
  return versions[bufnr]
end

---@param bufnrs integer[]
---@return boolean
local function fresh(bufnrs)
  return vim.iter(bufnrs):all(function(bufnr)
    return not vim.api.nvim_buf_is_loaded(bufnr) or versions[bufnr] == present(bufnr)
  end)
end

--- Wait a limited time until the diagnostics belong to the current text of the buffers. The caller must run in a
--- coroutine, as the handlers of server requests do, so that Neovim does not block.
---@param bufnrs integer[]
function M.reached(bufnrs)
  local running, is_main = coroutine.running()
  if fresh(bufnrs) or not running or is_main then
    return
  end
  local timer = assert(vim.uv.new_timer())
  local on_told
  local function go_on()
    if waiting[on_told] then
      waiting[on_told] = nil
      timer:close()
      coroutine.resume(running)
    end
  end
  on_told = function()
    if fresh(bufnrs) then
      go_on()
    end
  end
  waiting[on_told] = true
  timer:start(PATIENCE, 0, vim.schedule_wrap(go_on))
  coroutine.yield()
end

function M.watch()
  local group = vim.api.nvim_create_augroup('thinklsp_freshness', {})
  vim.api.nvim_create_autocmd('DiagnosticChanged', {
    group = group,
    callback = function(event)
      versions[event.buf] = present(event.buf)
      for on_told in pairs(waiting) do
        -- Call it later, after the code that reports the diagnostics.
        vim.schedule(on_told)
      end
    end,
  })
  vim.api.nvim_create_autocmd('BufUnload', {
    group = group,
    callback = function(event)
      versions[event.buf] = nil
    end,
  })
end

return M
