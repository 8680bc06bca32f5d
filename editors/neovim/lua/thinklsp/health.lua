--- `:checkhealth thinklsp`.
local client = require('thinklsp.client')

local M = {}

--- The doctor's report in lines for people.
---@param report table
---@return string[]
function M.told(report)
  local lines = { 'thinklsp ' .. report.version }
  local model = report.model
  if model then
    table.insert(lines, ('- model %s of %s, effort %s'):format(model.id or '?', model.provider, model.effort or '?'))
    table.insert(lines, ('- thinking %s; key: %s'):format(model.thinking or '?', model.keySource or 'none'))
  end
  table.insert(lines, '- settings file ' .. report.settings.file)
  table.insert(lines, '- log ' .. report.store.log)
  for _, problem in ipairs(report.problems) do
    table.insert(lines, '- problem: ' .. problem)
  end
  table.insert(lines, report.canRun and 'A turn could run now.' or 'No turn can run before this is mended.')
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
    local advice = "Run `pip install .` in the folder of the project, or name it: setup({ cmd = { '/path/to/thinklsp' } })."
    vim.health.error(('there is no program %s'):format(cmd[1]), advice)
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
    vim.health.warn('the server does not run yet', 'Open a file: it starts with the first one.')
    return
  end
  vim.health.ok(
    ('attached to %d buffer(s), root %s'):format(
      vim.tbl_count(running.attached_buffers),
      running.root_dir or 'none: the model sees open files only'
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
  for _, line in ipairs(M.told(report)) do
    (report.canRun and vim.health.info or vim.health.warn)(line)
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
