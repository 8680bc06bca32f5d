--- The health check of thinklsp, `:checkhealth thinklsp`.
local client = require('thinklsp.client')

local M = {}

--- Return the facts of the doctor's report.
---@param report table
---@return string[]
function M.facts(report)
  local lines = { 'thinklsp ' .. report.version }
  local model = report.model
  if model then
    table.insert(lines, ('model %s of %s, effort %s'):format(model.id or '?', model.provider, model.effort or '?'))
    table.insert(lines, ('thinking %s; key: %s'):format(model.thinking or '?', model.keySource or 'none'))
  end
  if report.settings then
    table.insert(lines, 'settings file ' .. report.settings.file)
  end
  table.insert(lines, 'log ' .. report.store.log)
  return lines
end

--- Format the doctor's report as lines of text.
---@param report table
---@return string[]
function M.told(report)
  local lines = M.facts(report)
  for _, problem in ipairs(report.problems) do
    table.insert(lines, 'problem: ' .. problem)
  end
  table.insert(lines, report.canRun and 'A turn could run now.' or 'No turn can run until the problems are fixed.')
  return lines
end

local function check_neovim()
  if vim.fn.has('nvim-0.10') == 1 then
    vim.health.ok('Neovim ' .. tostring(vim.version()))
  else
    vim.health.error('Neovim is too old', 'Use Neovim 0.10 or newer.')
  end
end

---@return boolean
local function check_program()
  local cmd = client.options.cmd
  if vim.fn.executable(cmd[1]) == 0 then
    local advice = "Run `pip install .` in thinklsp's folder, or set the path: setup({ cmd = { '/path/thinklsp' } })."
    vim.health.error(('the program %s was not found'):format(cmd[1]), advice)
    return false
  end
  local done = vim.system({ cmd[1], '--version' }, { text = true }):wait(10000)
  if done.code ~= 0 then
    vim.health.error(('%s --version failed'):format(cmd[1]), vim.trim(done.stderr or ''))
    return false
  end
  vim.health.ok(('%s: %s'):format(vim.fn.exepath(cmd[1]), vim.trim(done.stdout)))
  return true
end

local function check_server()
  local running = vim.lsp.get_clients({ name = client.NAME })[1]
  if not running then
    vim.health.info('the server is not running yet; open a file to start it')
    return
  end
  vim.health.ok(
    ('attached to %d buffer(s), root %s'):format(
      vim.tbl_count(running.attached_buffers),
      running.root_dir or 'none (the model can read only open files)'
    )
  )
  local report = client.ask_now(running, 'thinklsp.doctor', {}, 10000)
  if not report then
    vim.health.error(
      'the server did not answer within 10 s',
      'See :Thinklsp log and :lua vim.cmd.edit(vim.lsp.get_log_path())'
    )
    return
  end
  for _, fact in ipairs(M.facts(report)) do
    vim.health.info(fact)
  end
  for _, problem in ipairs(report.problems) do
    vim.health.warn(problem)
  end
  if report.canRun then
    vim.health.ok('A turn could run now.')
  else
    vim.health.error('No turn can run until the problems are fixed.')
  end
end

function M.check()
  vim.health.start('thinklsp')
  check_neovim()
  if check_program() then
    check_server()
  end
end

return M
