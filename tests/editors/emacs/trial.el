;;; trial.el --- Lets a trial look into an Emacs from outside  -*- lexical-binding: t; -*-

(require 'server)
(require 'json)

(setq server-socket-dir (expand-file-name "server" user-emacs-directory)
      server-client-instructions nil
      confirm-kill-processes nil
      make-backup-files nil
      create-lockfiles nil
      auto-save-default nil
      column-number-mode nil
      line-number-mode nil
      mode-line-format '("%b %* " minor-mode-alist))
(setq-default mode-line-format mode-line-format)
(server-start)

(defun trial-text (name)
  "What the buffer of the file NAME holds, without what is only shown."
  (with-current-buffer (find-buffer-visiting name)
    (save-restriction
      (widen)
      (buffer-substring-no-properties (point-min) (point-max)))))

(defun trial-shown (name)
  "What overlays show beside the text of the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (mapconcat (lambda (overlay) (substring-no-properties (or (overlay-get overlay 'after-string) "")))
               (overlays-in (point-min) (point-max)) "")))

(defun trial-problems (name)
  "What Flymake has found in the file NAME."
  (with-current-buffer (find-buffer-visiting name)
    (vconcat (mapcar #'flymake-diagnostic-text (flymake-diagnostics)))))

(defun trial-candidate (ending)
  "The candidate in the minibuffer that ends with ENDING."
  (with-current-buffer (window-buffer (minibuffer-window))
    (cl-find ending (all-completions "" minibuffer-completion-table) :test #'string-suffix-p)))
