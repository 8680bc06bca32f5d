;;; thinklsp.el --- An AI assistant with thinking models, over LSP  -*- lexical-binding: t; -*-

;; Author: The thinklsp authors
;; Version: 0.2.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, languages
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Commands, a mode line with the status of the model, and chat documents for
;; the thinklsp language server, over eglot or lsp-mode.  With lsp-mode, the
;; server runs in addition to your other servers.  With eglot, it is the server
;; of the modes that you add:
;;
;;   (require 'thinklsp)
;;   (thinklsp-eglot-add 'python-mode)   ; eglot only
;;
;; `thinklsp-mode' is enabled in buffers of the server; its prefix key is C-c ".

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
  "Return the start and end of the region, or else of the line."
  (if (use-region-p)
      (cons (region-beginning) (region-end))
    (cons (line-beginning-position) (line-end-position))))

(defun thinklsp--act (name &rest fields)
  "Run the action NAME on the region or line, with the plist FIELDS."
  (let ((encoding (thinklsp-connection-encoding (thinklsp-connection))))
    (thinklsp-run "thinklsp.action"
                  `(:name ,name :uri ,(thinklsp-uri) :range ,(thinklsp-range (thinklsp--bounds) encoding)
                          ,@fields))))

(defun thinklsp--problems (bounds)
  "Return the diagnostics of Flymake and Flycheck in BOUNDS.
Each is a list (message start . end)."
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
  "Fix the diagnostics of Flymake or Flycheck on this line or in the region.
The diagnostics can come from any server or linter."
  (interactive)
  (let ((encoding (thinklsp-connection-encoding (thinklsp-connection)))
        (problems (or (thinklsp--problems (thinklsp--bounds))
                      (user-error "There is no diagnostic on this line"))))
    (thinklsp--act "fix" :diagnostics
                   (vconcat (mapcar (pcase-lambda (`(,message . ,bounds))
                                      (list :message message :range (thinklsp-range bounds encoding)))
                                    problems)))))

;;;###autoload
(defun thinklsp-edit (instruction)
  "Change the region, or else the line, as INSTRUCTION describes."
  (interactive "sDescribe the change: ")
  (thinklsp--act "edit" :instruction instruction))

;;;###autoload
(defun thinklsp-explain ()
  "Explain the region, or else the line."
  (interactive)
  (thinklsp--act "explain"))

;;;###autoload
(defun thinklsp-review ()
  "Review the file and its uncommitted changes."
  (interactive)
  (thinklsp--act "review"))

(defun thinklsp-undo ()
  "Undo the newest turn that changed files, in all of its files.
Later changes are kept."
  (interactive)
  (thinklsp--tell-files (thinklsp-ask "thinklsp.undo")))

(defun thinklsp-apply ()
  "Apply the pending edit of the newest turn."
  (interactive)
  (thinklsp--tell-files (thinklsp-ask "thinklsp.apply")))

(defun thinklsp-discard ()
  "Drop the pending edit of the newest turn."
  (interactive)
  (message "thinklsp: discarded, %d file(s)" (length (thinklsp-get (thinklsp-ask "thinklsp.discard") 'files))))

(defun thinklsp--tell-files (answer)
  "Show the files in ANSWER, each with its status."
  (message "thinklsp: %s"
           (mapconcat (lambda (file)
                        (string-join (cons (format "%s %s"
                                                   (file-name-nondirectory (url-unhex-string (thinklsp-get file 'uri)))
                                                   (thinklsp-get file 'status))
                                           (ensure-list (thinklsp-true (thinklsp-get file 'reason))))
                                     ": "))
                      (thinklsp-get answer 'files) "\n")))

;;; Settings and usage

(defun thinklsp--choose (command)
  "Read a value for COMMAND from the choices that the server offers, and set it."
  (let* ((now (thinklsp-ask command))
         (value (completing-read (format "%s (now %s): " command (thinklsp-get now 'effective))
                                 (append (thinklsp-get now 'choices) nil)))
         (answer (thinklsp-ask command (list :value value))))
    (message "thinklsp: %s" (string-join (cons (thinklsp-get answer 'effective)
                                               (ensure-list (thinklsp-true (thinklsp-get answer 'notice))))
                                         "\n"))))

(defun thinklsp-effort ()
  "Choose the model's reasoning effort."
  (interactive)
  (thinklsp--choose "thinklsp.effort"))

(defun thinklsp-thinking ()
  "Choose the model's thinking mode."
  (interactive)
  (thinklsp--choose "thinklsp.thinking"))

(defun thinklsp-model ()
  "Choose the model."
  (interactive)
  (thinklsp--choose "thinklsp.model"))

(defun thinklsp-usage ()
  "Show the newest session's tokens and cost."
  (interactive)
  (let* ((total (thinklsp-get (thinklsp-ask "thinklsp.usage") 'total))
         (cost (thinklsp-true (thinklsp-get total 'costUsd))))
    (message "thinklsp: %s tokens in (%s from the cache), %s out, %s"
             (thinklsp-get total 'inputTokens) (thinklsp-get total 'cacheReadTokens)
             (thinklsp-get total 'outputTokens) (if cost (format "%.4f USD" cost) "cost unknown"))))

(defun thinklsp-doctor ()
  "Show the current model, settings and problems."
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
                     ("a" . thinklsp-apply) ("d" . thinklsp-discard) ("t" . thinklsp-effort) ("m" . thinklsp-model)
                     ("$" . thinklsp-usage)))
      (define-key map key command))
    map)
  "Keys for `thinklsp-mode' after its prefix key.")

(defvar thinklsp-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c \"") thinklsp-command-map)
    map)
  "Keymap for `thinklsp-mode'.")

;;;###autoload
(define-minor-mode thinklsp-mode
  "Minor mode with thinklsp's keys and its status in the mode line."
  :lighter (:eval (thinklsp-status)))

(provide 'thinklsp)
;;; thinklsp.el ends here
