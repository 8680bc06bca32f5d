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

" ALE has no linter for all languages, so each file type gets its own one. `typescriptreact` has those of `typescript`.
function! s:AddToAle(filetypes) abort
  let l:filetype = matchstr(a:filetypes, '^[^.]*')
  if l:filetype ==# '' || has_key(s:added, l:filetype)
    return
  endif
  let s:added[l:filetype] = 1
  let l:arguments = map(copy(g:thinklsp_command[1:]), {_, argument -> ' ' . shellescape(argument)})
  call ale#linter#Define(ale#linter#ResolveFiletype(l:filetype)[0], {
  \ 'name': 'thinklsp', 'lsp': 'stdio', 'language': {buffer -> matchstr(getbufvar(buffer, '&filetype'), '^[^.]*')},
  \ 'project_root': function('s:FindRoot'),
  \ 'executable': g:thinklsp_command[0], 'command': '%e' . join(l:arguments, ''),
  \ 'lsp_config': {'thinklsp': g:thinklsp_settings},
  \})
  " ALE has lists of its own for Python, Rust, Go and others: the user's list or ALE's own stays, and thinklsp is added.
  let l:linters = map(ale#linter#Get(l:filetype), 'v:val.name')
  if index(l:linters, 'thinklsp') < 0
    let g:ale_linters = extend(copy(get(g:, 'ale_linters', {})), {l:filetype : l:linters + ['thinklsp']})
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
