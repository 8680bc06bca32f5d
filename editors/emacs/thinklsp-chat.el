;;; thinklsp-chat.el --- Chat documents of thinklsp  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; A chat document is a file that ends in .chat.md: write below its last
;; heading "You" and send it.  The first line contains the session id.

;;; Code:

(require 'thinklsp-turns)
(require 'project)

(defvar thinklsp-chat-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'thinklsp-send)
    (define-key map (kbd "C-c C-k") #'thinklsp-stop)
    map)
  "Keymap for `thinklsp-chat-mode'.")

(defvar thinklsp-chat--keywords
  '(("^## \\(?:You\\|thinklsp\\)$" . font-lock-keyword-face)
    ("^<!-- .* -->$" . font-lock-comment-face)
    ("\\(?:^\\|[ \t]\\)\\(@[^ \t\n]+\\)" 1 font-lock-constant-face)
    ("^/[a-z]+" . font-lock-builtin-face))
  "Font lock keywords for chat documents.")

;;;###autoload
(define-derived-mode thinklsp-chat-mode text-mode "Chat"
  "Major mode for conversations with a model, in Markdown.
Write below the last heading \"You\", then type \\[thinklsp-send]."
  (setq font-lock-defaults '(thinklsp-chat--keywords t)))

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.chat\\.md\\'" . thinklsp-chat-mode))

(defun thinklsp-chat--root ()
  "Return the folder for this buffer's chat documents."
  (let ((connection (run-hook-with-args-until-success 'thinklsp-connection-functions))
        (project (project-current)))
    (cond (connection (thinklsp-connection-root connection))
          (project (expand-file-name (project-root project)))
          (t default-directory))))

(defun thinklsp-chat--reference (root)
  "Return a reference to the region, relative to ROOT, or an empty string."
  (if (and (use-region-p) buffer-file-name)
      (format "@%s:%d-%d\n" (file-relative-name buffer-file-name root)
              (line-number-at-pos (region-beginning))
              (line-number-at-pos (max (region-beginning) (1- (region-end)))))
    ""))

(defun thinklsp-chat--open (root text)
  "Create a chat document with TEXT below ROOT and visit it."
  (let* ((folder (expand-file-name ".thinklsp/chat/" root))
         (ignored (expand-file-name ".gitignore" folder)))
    (make-directory folder t)
    (unless (file-exists-p ignored) (write-region "*\n" nil ignored nil 'quiet))
    (let ((name (make-temp-file (expand-file-name (format-time-string "%Y%m%d-%H%M%S-") folder)
                                nil ".chat.md" text)))
      (set-file-modes name #o644)
      (find-file name)
      (goto-char (point-max)))))

;;;###autoload
(defun thinklsp-chat ()
  "Open a new chat document, with a reference to the region if it is active."
  (interactive)
  (let ((root (thinklsp-chat--root)))
    (thinklsp-chat--open root (concat "## You\n\n" (thinklsp-chat--reference root)))))

(defun thinklsp-send ()
  "Send the text below the last heading \"You\" of this chat document."
  (interactive)
  (thinklsp-run "thinklsp.send" (list :uri (thinklsp-uri))))

(defun thinklsp-stop ()
  "Stop the newest turn."
  (interactive)
  (if-let ((turn (thinklsp-newest-turn)))
      (funcall (thinklsp-connection-notify (thinklsp-turn-connection turn)) "window/workDoneProgress/cancel"
               (list :token (thinklsp-turn-token turn)))
    (thinklsp-ask "thinklsp.cancel")))

;;; Sessions

(defun thinklsp-chat--session (prompt)
  "Read a session in this folder with PROMPT and return its id."
  (let ((names (mapcar (lambda (row)
                         (let ((id (thinklsp-get row 'sessionId)))
                           (cons (format "%s  %s" (substring id 0 8) (thinklsp-get row 'title)) id)))
                       (thinklsp-ask "thinklsp.sessions"))))
    (unless names (user-error "This folder has no sessions yet"))
    (cdr (assoc (completing-read prompt names nil t) names))))

(defun thinklsp-sessions ()
  "Choose a session in this folder and show its conversation."
  (interactive)
  (let ((id (thinklsp-chat--session "Read session: ")))
    (thinklsp-show (thinklsp-get (thinklsp-ask "thinklsp.sessions" (list :op "show" :sessionId id)) 'text))))

(defun thinklsp-resume ()
  "Choose a session in this folder and continue it in a chat document."
  (interactive)
  (let ((id (thinklsp-chat--session "Resume session: ")))
    (thinklsp-chat--open (thinklsp-chat--root) (format "<!-- thinklsp session: %s -->\n\n## You\n\n" id))))

(provide 'thinklsp-chat)
;;; thinklsp-chat.el ends here
