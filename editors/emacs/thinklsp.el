;;; thinklsp.el --- An assistant that thinks, over LSP  -*- lexical-binding: t; -*-

;; Author: The thinklsp authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, languages
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Commands, a mode line that shows the thinking, and chat documents for the
;; thinklsp language server, over eglot or lsp-mode.  With lsp-mode it runs
;; beside the servers that you have; with eglot it is the server of the modes
;; that you name:
;;
;;   (require 'thinklsp)
;;   (thinklsp-eglot-add 'python-mode)   ; eglot only
;;
;; `thinklsp-mode' is on where the server runs; its keys are below C-c ".

;;; Code:

(require 'thinklsp-turns)
(require 'thinklsp-chat)

(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-text "flymake")
(declare-function flymake-diagnostic-beg "flymake")
(declare-function flymake-diagnostic-end "flymake")
(declare-function flycheck-overlay-errors-in "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")
(declare-function flycheck-error-region-for-mode "ext:flycheck")

(autoload 'thinklsp-eglot-add "thinklsp-eglot")
(with-eval-after-load 'eglot (require 'thinklsp-eglot))
(with-eval-after-load 'lsp-mode (require 'thinklsp-lsp-mode))

;;; Actions

(defun thinklsp--bounds ()
  "Begin and end of the region, else of the line."
  (if (use-region-p)
      (cons (region-beginning) (region-end))
    (cons (line-beginning-position) (line-end-position))))

(defun thinklsp--act (name &rest fields)
  "Run the action NAME on region or line, with the plist FIELDS."
  (let ((encoding (thinklsp-connection-encoding (thinklsp-connection))))
    (thinklsp-run "thinklsp.action"
                  `(:name ,name :uri ,(thinklsp-uri) :range ,(thinklsp-range (thinklsp--bounds) encoding)
                          ,@fields))))

(defun thinklsp--problems (bounds)
  "Problems of Flymake and Flycheck in BOUNDS, as (message begin . end)."
  (append
   (when (bound-and-true-p flymake-mode)
     (mapcar (lambda (problem)
               `(,(flymake-diagnostic-text problem)
                 ,(flymake-diagnostic-beg problem) . ,(flymake-diagnostic-end problem)))
             (flymake-diagnostics (car bounds) (cdr bounds))))
   (when (bound-and-true-p flycheck-mode)
     (mapcar (lambda (problem)
               `(,(flycheck-error-message problem) . ,(flycheck-error-region-for-mode problem major-mode)))
             (flycheck-overlay-errors-in (car bounds) (cdr bounds))))))

;;;###autoload
(defun thinklsp-fix ()
  "Fix the problems of Flymake or Flycheck on this line or in the region.
It does not matter which program found it."
  (interactive)
  (let ((encoding (thinklsp-connection-encoding (thinklsp-connection)))
        (problems (or (thinklsp--problems (thinklsp--bounds))
                      (user-error "No problem is shown on this line"))))
    (thinklsp--act "fix" :diagnostics
                   (vconcat (mapcar (pcase-lambda (`(,message . ,bounds))
                                      (list :message message :range (thinklsp-range bounds encoding)))
                                    problems)))))

;;;###autoload
(defun thinklsp-edit (instruction)
  "Change the region, or the line, by INSTRUCTION."
  (interactive "sChange it how? ")
  (thinklsp--act "edit" :instruction instruction))

;;;###autoload
(defun thinklsp-explain ()
  "Explain the region, or the line."
  (interactive)
  (thinklsp--act "explain"))

;;;###autoload
(defun thinklsp-review ()
  "Review the file, and what of it is not committed."
  (interactive)
  (thinklsp--act "review"))

(defun thinklsp-undo ()
  "Take the newest turn that wrote back, in all of its files.
What was typed since stays."
  (interactive)
  (thinklsp--tell-files (thinklsp-ask "thinklsp.undo")))

(defun thinklsp-apply ()
  "Bring in the edit that the newest turn held back."
  (interactive)
  (thinklsp--tell-files (thinklsp-ask "thinklsp.apply")))

(defun thinklsp--tell-files (answer)
  "Say which files ANSWER is about, and what became of them."
  (message "thinklsp: %s"
           (mapconcat (lambda (file)
                        (string-join (cons (format "%s %s"
                                                   (file-name-nondirectory (url-unhex-string (thinklsp-get file 'uri)))
                                                   (thinklsp-get file 'status))
                                           (ensure-list (thinklsp-true (thinklsp-get file 'reason))))
                                     ": "))
                      (thinklsp-get answer 'files) "\n")))

;;; What would be used, and what was

(defun thinklsp--choose (command)
  "Choose a value for COMMAND among those of the server."
  (let* ((now (thinklsp-ask command))
         (value (completing-read (format "%s (now %s): " command (thinklsp-get now 'effective))
                                 (append (thinklsp-get now 'choices) nil)))
         (answer (thinklsp-ask command (list :value value))))
    (message "thinklsp: %s" (string-join (cons (thinklsp-get answer 'effective)
                                               (ensure-list (thinklsp-true (thinklsp-get answer 'notice))))
                                         "\n"))))

(defun thinklsp-effort ()
  "Choose the effort of the model."
  (interactive)
  (thinklsp--choose "thinklsp.effort"))

(defun thinklsp-thinking ()
  "Choose how the model thinks."
  (interactive)
  (thinklsp--choose "thinklsp.thinking"))

(defun thinklsp-model ()
  "Choose the model."
  (interactive)
  (thinklsp--choose "thinklsp.model"))

(defun thinklsp-usage ()
  "Show what the newest session has used."
  (interactive)
  (let* ((total (thinklsp-get (thinklsp-ask "thinklsp.usage") 'total))
         (cost (thinklsp-true (thinklsp-get total 'costUsd))))
    (message "thinklsp: %s tokens in (%s from the cache), %s out, %s"
             (thinklsp-get total 'inputTokens) (thinklsp-get total 'cacheReadTokens)
             (thinklsp-get total 'outputTokens) (if cost (format "%.4f USD" cost) "cost unknown"))))

(defun thinklsp-doctor ()
  "Show which model and settings would be used, and what is missing."
  (interactive)
  (thinklsp-show (with-temp-buffer
                   (apply #'call-process (car thinklsp-command) nil t nil (append (cdr thinklsp-command) '("doctor")))
                   (buffer-string))))

;;; Mode

(defvar thinklsp-command-map
  (let ((map (make-sparse-keymap)))
    (pcase-dolist (`(,key . ,command)
                   '(("f" . thinklsp-fix) ("e" . thinklsp-edit) ("x" . thinklsp-explain) ("c" . thinklsp-chat)
                     ("r" . thinklsp-resume) ("l" . thinklsp-sessions) ("k" . thinklsp-stop) ("u" . thinklsp-undo)
                     ("a" . thinklsp-apply) ("t" . thinklsp-effort) ("m" . thinklsp-model) ("$" . thinklsp-usage)))
      (define-key map key command))
    map)
  "Keys of `thinklsp-mode' below its prefix.")

(defvar thinklsp-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c \"") thinklsp-command-map)
    map)
  "Keys of `thinklsp-mode'.")

;;;###autoload
(define-minor-mode thinklsp-mode
  "Keys of thinklsp, and its thinking in the mode line."
  :lighter (:eval (thinklsp-status)))

(provide 'thinklsp)
;;; thinklsp.el ends here
