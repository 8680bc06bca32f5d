;;; lsp-mode.el --- A user of lsp-mode with a language server for Python  -*- lexical-binding: t; -*-

(setq lsp-auto-guess-root t
      lsp-auto-execute-action nil
      lsp-enable-suggest-server-download nil
      lsp-enable-file-watchers nil
      lsp-modeline-code-actions-enable nil
      lsp-headerline-breadcrumb-enable nil)
(add-hook 'python-mode-hook #'lsp)
(with-eval-after-load 'lsp-mode
  (lsp-register-client
   (make-lsp-client :new-connection (lsp-stdio-connection "thinklsp-lint")
                    :activation-fn (lambda (_file mode) (eq mode 'python-mode))
                    :priority 1 :server-id 'lint)))

(defun trial-servers (name)
  "The servers of the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (vconcat (mapcar (lambda (workspace)
                       (symbol-name (lsp--client-server-id (lsp--workspace-client workspace))))
                     (cl-remove-if-not (lambda (workspace) (eq (lsp--workspace-status workspace) 'initialized))
                                       (lsp-workspaces))))))

(defun trial-actions (name)
  "Titles of code actions on the line of point in the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (vconcat (mapcar #'lsp:code-action-title (lsp-code-actions-at-point)))))
