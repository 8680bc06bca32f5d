;;; eglot.el --- A user of eglot, with a checker for Python  -*- lexical-binding: t; -*-

(setq python-flymake-command '("thinklsp-lint" "--check"))
(add-hook 'python-mode-hook #'eglot-ensure)

(defun trial-servers (name)
  "The servers of the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (when-let ((server (eglot-current-server)))
      (vector (plist-get (eglot--server-info server) :name)))))

(defun trial-actions (name)
  "Titles of code actions on the line of point in the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (vconcat (mapcar (lambda (action) (plist-get action :title))
                     (eglot-code-actions (line-beginning-position) (line-end-position))))))
