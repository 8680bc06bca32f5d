std = "luajit"
read_globals = { "vim" }
-- Options and variables are set by assignment; the rest of `vim` is not.
globals = { "vim.bo", "vim.wo", "vim.g", "vim.ui" }
max_line_length = 120
