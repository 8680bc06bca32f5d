-- Defines the command `:Thinklsp` and the <Plug> maps, and starts the client if the user does not call setup().
if vim.g.loaded_thinklsp then
  return
end
vim.g.loaded_thinklsp = true

vim.api.nvim_create_user_command('Thinklsp', function(call)
  require('thinklsp.commands').run(call)
end, {
  nargs = '*',
  range = true,
  desc = 'thinklsp: chat, edit, explain and other subcommands',
  complete = function(_, line)
    return require('thinklsp.commands').complete(line)
  end,
})

for _, name in ipairs({ 'chat', 'send', 'edit', 'explain', 'actions', 'sessions', 'stop', 'undo', 'apply', 'toggle' }) do
  -- In Visual mode, `:` inserts the range of the selection before the command.
  vim.keymap.set({ 'n', 'x' }, ('<Plug>(thinklsp-%s)'):format(name), (':Thinklsp %s<CR>'):format(name), {
    silent = true,
    desc = 'thinklsp: ' .. name,
  })
end

local function start()
  require('thinklsp').start()
end

if vim.v.vim_did_enter == 1 then
  -- Wait, because a plugin manager may call setup() directly after it has loaded this file.
  vim.schedule(start)
else
  vim.api.nvim_create_autocmd('VimEnter', { once = true, callback = start })
end
