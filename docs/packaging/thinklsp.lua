---@brief
---
--- https://github.com/OWNER/thinklsp
---
--- A language server that thinks: an AI coding assistant for any editor that speaks LSP.
--- It attaches to all files. The plug-in in `editors/neovim` adds the chat and the review of edits.

---@type vim.lsp.Config
return {
  cmd = { 'thinklsp', '--stdio' },
  root_markers = { '.git' },
}
