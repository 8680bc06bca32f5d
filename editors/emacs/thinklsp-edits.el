;;; thinklsp-edits.el --- Reviews and applies the server's edits  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Both clients apply text edits, but older versions neither create, delete
;; and rename files nor ask about that.  An edit that goes beyond a request is
;; asked about file by file, beside its diff.  New files are written byte by
;; byte, and files that only the edit has opened are saved.

;;; Code:

(require 'thinklsp-turns)

(defun thinklsp--path (uri)
  "Return the path of URI, which names a file."
  (decode-coding-string (url-unhex-string (string-remove-prefix "file://" uri)) 'utf-8))

(defun thinklsp--uri-of (change)
  "Return the URI of the file that CHANGE changes."
  (or (thinklsp-get change 'uri) (thinklsp-get change 'oldUri) (thinklsp-get change 'textDocument 'uri)))

(defun thinklsp--new-texts (changes)
  "Return an alist of the files that CHANGES create, each URI with its text."
  (let (texts)
    (seq-doseq (change changes)
      (if (equal (thinklsp-get change 'kind) "create")
          (push (cons (thinklsp--uri-of change) "") texts)
        (when-let ((new (assoc (thinklsp--uri-of change) texts)))
          (setcdr new (mapconcat (lambda (edit) (thinklsp-get edit 'newText)) (thinklsp-get change 'edits) "")))))
    texts))

;;; Applying

(defun thinklsp-answer-edit (edit apply-edits)
  "Apply EDIT and return the answer for the server.
APPLY-EDITS is called in the buffer of a file, with text edits and the
version of the document for which they are."
  (condition-case problem
      (let* ((changes (thinklsp-get edit 'documentChanges))
             (texts (thinklsp--new-texts changes)))
        (seq-doseq (change changes)
          (thinklsp--apply-change change texts apply-edits))
        '(:applied t))
    (error (list :applied :json-false :failureReason (error-message-string problem)))))

(defun thinklsp--apply-change (change texts apply-edits)
  "Apply CHANGE.  TEXTS has the new files; APPLY-EDITS is for text edits."
  (let* ((uri (thinklsp--uri-of change))
         (path (thinklsp--path uri)))
    (pcase (thinklsp-get change 'kind)
      ("create" (thinklsp--create path (cdr (assoc uri texts))))
      ("delete" (thinklsp--delete path))
      ("rename" (thinklsp--rename path (thinklsp--path (thinklsp-get change 'newUri))))
      (_ (unless (assoc uri texts)
           (thinklsp--edit path (lambda ()
                                  (funcall apply-edits (thinklsp-get change 'edits)
                                           (thinklsp-true (thinklsp-get change 'textDocument 'version))))))))))

(defun thinklsp--create (path text)
  "Write TEXT to the new file PATH, byte by byte."
  (when (< 0 (or (file-attribute-size (file-attributes path)) 0))
    (error "The file %s exists already" path))
  (make-directory (file-name-directory path) t)
  (let ((coding-system-for-write 'utf-8-unix))
    (write-region text nil path nil 'silent))
  (when-let ((buffer (find-buffer-visiting path)))
    (with-current-buffer buffer (revert-buffer t t t))))

(defun thinklsp--delete (path)
  "Delete the file PATH and its buffer."
  (when-let ((buffer (find-buffer-visiting path)))
    (with-current-buffer buffer (set-buffer-modified-p nil))
    (kill-buffer buffer))
  (when (file-exists-p path) (delete-file path)))

(defun thinklsp--rename (old new)
  "Rename the file OLD to NEW, and show NEW in the windows of OLD."
  (let ((buffer (find-buffer-visiting old)))
    (when buffer (with-current-buffer buffer (save-buffer)))
    (make-directory (file-name-directory new) t)
    (rename-file old new)
    (when buffer
      (dolist (window (get-buffer-window-list buffer nil t))
        (set-window-buffer window (find-file-noselect new)))
      (kill-buffer buffer))))

(defun thinklsp--edit (path edit)
  "Call EDIT in the buffer of the file PATH, and save the file if it is hidden."
  (let* ((buffer (find-buffer-visiting path))
         (hidden (not (and buffer (or (buffer-modified-p buffer) (get-buffer-window buffer t))))))
    (with-current-buffer (or buffer (find-file-noselect path))
      (funcall edit)
      (when hidden
        (let ((require-final-newline nil)) (save-buffer))))))

;;; Review

(defun thinklsp-review-changes (label changes)
  "Show CHANGES of the edit LABEL, and ask about each of its files.
Return the answer for the server.  Without an answer, no file is changed."
  (let (kept all)
    (save-window-excursion
      (thinklsp-show (concat label "\n" (mapconcat #'thinklsp--diff (append changes nil) "")))
      (condition-case nil
          (catch 'none
            (pcase-dolist (`(,uri ,title . ,count) (thinklsp--files changes))
              (pcase (or all (completing-read (format "%s? (no, yes, all, none; default no) " title)
                                              '("no" "yes" "all" "none") nil t nil nil "no"))
                ("all" (setq all "yes") (push (cons uri count) kept))
                ("yes" (push (cons uri count) kept))
                ("none" (throw 'none nil)))))
        (quit (setq kept nil))))
    (list :files (vconcat (mapcar (pcase-lambda (`(,uri . ,count))
                                    (list :uri uri :kept (vconcat (number-sequence 0 (1- count)))))
                                  (nreverse kept))))))

(defun thinklsp--files (changes)
  "Return the files of CHANGES: URI, title, and number of changes of each."
  (let (files)
    (seq-doseq (change changes)
      (let* ((uri (thinklsp--uri-of change))
             (file (assoc uri files))
             (kind (thinklsp-get change 'kind))
             (title (thinklsp--title change)))
        (cond ((not file) (push `(,uri ,title . ,(if kind 1 (length (thinklsp-get change 'edits)))) files))
              ;; The text of a new file belongs to its creation.
              ((equal kind "rename") (setcdr file (cons title (1+ (cddr file))))))))
    (nreverse files)))

(defun thinklsp--title (change)
  "Return what CHANGE does to its file."
  (let ((name (lambda (uri) (file-relative-name (thinklsp--path uri)))))
    (pcase (thinklsp-get change 'kind)
      ("create" (format "Create %s" (funcall name (thinklsp--uri-of change))))
      ("delete" (format "Delete %s" (funcall name (thinklsp--uri-of change))))
      ("rename" (format "Rename %s to %s" (funcall name (thinklsp--uri-of change))
                        (funcall name (thinklsp-get change 'newUri))))
      (_ (format "Change %s" (funcall name (thinklsp--uri-of change)))))))

(defun thinklsp--diff (change)
  "Return CHANGE as text: its title, and lines that begin with - or +."
  (let* ((kind (thinklsp-get change 'kind))
         (lines (unless (member kind '("create" "rename")) (thinklsp--lines (thinklsp--path (thinklsp--uri-of change))))))
    (concat "\n" (thinklsp--title change) "\n"
            (when (equal kind "delete") (thinklsp--signed "-" (string-join lines "\n")))
            (mapconcat (lambda (edit) (thinklsp--edit-diff edit lines)) (append (thinklsp-get change 'edits) nil) ""))))

(defun thinklsp--lines (path)
  "Return the lines of the file PATH, or of its buffer."
  (let ((buffer (find-buffer-visiting path)))
    (with-temp-buffer
      (cond (buffer (insert-buffer-substring-no-properties buffer))
            ((file-exists-p path) (insert-file-contents path)))
      (split-string (buffer-string) "\n"))))

(defun thinklsp--edit-diff (edit lines)
  "Return the diff of the text EDIT of a file with LINES."
  (let* ((first (thinklsp-get edit 'range 'start 'line))
         (last (thinklsp-get edit 'range 'end 'line))
         (from (thinklsp-get edit 'range 'start 'character))
         (to (thinklsp-get edit 'range 'end 'character))
         (head (or (nth first lines) ""))
         (tail (or (nth last lines) ""))
         (text (thinklsp-get edit 'newText)))
    (if (= from to 0)
        (concat (thinklsp--signed "-" (string-join (seq-subseq lines first last) "\n")) (thinklsp--signed "+" text))
      (concat (thinklsp--signed "-" (string-join (seq-take (nthcdr first lines) (1+ (- last first))) "\n"))
              (thinklsp--signed "+" (concat (substring head 0 (min from (length head))) text
                                            (substring tail (min to (length tail)))))))))

(defun thinklsp--signed (sign text)
  "Return the lines of TEXT with SIGN in front, or nothing for no text."
  (unless (string-empty-p text)
    (concat sign (replace-regexp-in-string "\n" (concat "\n" sign) (string-remove-suffix "\n" text)) "\n")))

(provide 'thinklsp-edits)
;;; thinklsp-edits.el ends here
