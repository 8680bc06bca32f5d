" Adds thinklsp to the LSP client that is installed: ALE, vim-lsp or yegappan/lsp.
if exists('g:loaded_thinklsp')
  finish
endif
let g:loaded_thinklsp = 1
let g:thinklsp_command = get(g:, 'thinklsp_command', ['thinklsp'])
let g:thinklsp_settings = get(g:, 'thinklsp_settings', {})

function! s:FindRoot(buffer) abort
  let l:folder = fnamemodify(bufname(a:buffer), ':p:h')
  let l:git = finddir('.git', l:folder . ';')
  return l:git ==# '' ? l:folder : fnamemodify(l:git, ':p:h:h')
endfunction

" ALE has no linter for all languages, so each file type gets its own one.
function! s:AddToAle(filetype) abort
  if a:filetype ==# '' || has_key(s:added, a:filetype)
    return
  endif
  let s:added[a:filetype] = 1
  let l:arguments = map(copy(g:thinklsp_command[1:]), {_, argument -> ' ' . shellescape(argument)})
  call ale#linter#Define(a:filetype, {
  \ 'name': 'thinklsp', 'lsp': 'stdio', 'language': a:filetype, 'project_root': function('s:FindRoot'),
  \ 'executable': g:thinklsp_command[0], 'command': '%e' . join(l:arguments, ''),
  \ 'lsp_config': {'thinklsp': g:thinklsp_settings},
  \})
  " The user's choice of linters stays, and thinklsp is added to it.
  let l:linters = get(g:, 'ale_linters', {})
  if has_key(l:linters, a:filetype) && type(l:linters[a:filetype]) == v:t_list
    let g:ale_linters[a:filetype] = l:linters[a:filetype] + ['thinklsp']
  elseif get(g:, 'ale_linters_explicit', 0)
    let g:ale_linters = extend(l:linters, {a:filetype : ['thinklsp']})
  endif
endfunction

if !empty(globpath(&runtimepath, 'autoload/ale/linter.vim'))
  let s:added = {}
  " Answers arrive as messages, which ALE hides by default.
  if !exists('g:ale_lsp_show_message_severity')
    let g:ale_lsp_show_message_severity = 'information'
  endif
  augroup thinklsp
    autocmd!
    autocmd FileType * call s:AddToAle(expand('<amatch>'))
  augroup END
  for s:buffer in range(1, bufnr('$'))
    call s:AddToAle(getbufvar(s:buffer, '&filetype'))
  endfor
elseif exists('*LspAddServer')
  " It has no entry for all languages either.
  call LspAddServer([#{
  \ name: 'thinklsp', path: g:thinklsp_command[0], args: g:thinklsp_command[1:],
  \ filetype: ['c', 'cpp', 'cs', 'go', 'java', 'javascript', 'javascriptreact', 'lua', 'markdown', 'php', 'python',
  \   'ruby', 'rust', 'sh', 'typescript', 'typescriptreact'],
  \ workspaceConfig: #{thinklsp: g:thinklsp_settings},
  \}])
elseif !empty(globpath(&runtimepath, 'autoload/lsp.vim'))
  augroup thinklsp
    autocmd!
    autocmd User lsp_setup call lsp#register_server({
    \ 'name': 'thinklsp', 'cmd': g:thinklsp_command, 'allowlist': ['*'],
    \ 'workspace_config': {'thinklsp': g:thinklsp_settings},
    \})
  augroup END
endif
