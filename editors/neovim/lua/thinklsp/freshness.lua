--- Which version of a buffer Neovim's diagnostics are about: it tells of them, but not of that.
local M = {}

local PATIENCE = 1500 -- milliseconds

---@type table<integer, integer> the latest version of a buffer for which anybody has told something
local versions = {}
---@type table<fun(), true> who waits for that
local waiting = {}

--- The version that servers were told of.
---@param bufnr integer
---@return integer
local function present(bufnr)
  return vim.lsp.util.buf_versions[bufnr] or vim.b[bufnr].changedtick
end

---@param bufnr integer
---@return integer? version nil: nobody has told anything
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

--- Waits until somebody has told something about the present texts, but not for ever. To be called in a coroutine,
--- as requests of servers are; Neovim goes on meanwhile.
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
        -- Not in the middle of what tells of them.
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
