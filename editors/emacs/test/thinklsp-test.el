;;; thinklsp-test.el --- Tests without a server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Run the tests with:
;; emacs -q --batch -L editors/emacs -l editors/emacs/test/thinklsp-test.el -f ert-run-tests-batch-and-exit

;;; Code:

(require 'ert)
(require 'thinklsp)
(require 'thinklsp-edits)

(ert-deftest thinklsp-test-columns-are-counted-in-the-encoding-of-the-server ()
  (pcase-dolist (`(,text ,utf-8 ,utf-16 ,utf-32)
                 '(("" 0 0 0) ("abc" 3 3 3) ("é" 2 1 1) ("日本" 6 2 2) ("a🟊b" 6 4 3)))
    (should (= utf-8 (thinklsp-units text "utf-8")))
    (should (= utf-16 (thinklsp-units text "utf-16")))
    (should (= utf-16 (thinklsp-units text nil)))
    (should (= utf-32 (thinklsp-units text "utf-32")))))

(ert-deftest thinklsp-test-positions-are-of-the-whole-buffer ()
  (with-temp-buffer
    (insert "first\n🟊 = 1\nlast")
    (should (equal '(:line 0 :character 0) (thinklsp-position (point-min) nil)))
    (should (equal '(:line 2 :character 4) (thinklsp-position (point-max) nil)))
    (goto-char 9)
    (narrow-to-region (point) (point-max))
    (should (equal '(:line 1 :character 3) (thinklsp-position 9 nil)))
    (should (equal '(:start (:line 1 :character 2) :end (:line 2 :character 0))
                   (thinklsp-range (cons 8 13) "utf-16")))))

(ert-deftest thinklsp-test-settings-are-nested-by-their-dots ()
  (pcase-dolist (`(,settings ,nested)
                 '((nil nil)
                   (((effort . "high")) (:effort "high"))
                   (((thinking.mode . "off") (maxSteps . 3) (thinking.budgetTokens . 2048))
                    (:thinking (:mode "off" :budgetTokens 2048) :maxSteps 3))
                   (((compaction.auto . :json-false)) (:compaction (:auto :json-false)))))
    (let ((thinklsp-settings settings))
      (should (equal nested (thinklsp-configuration))))))

(ert-deftest thinklsp-test-settings-are-told-when-they-are-customized ()
  (let* (told
         (thinklsp-settings nil)
         (thinklsp-settings-functions (list (lambda () (push (thinklsp-configuration) told)))))
    (customize-set-variable 'thinklsp-settings '((effort . "low")))
    (should (equal '((:effort "low")) told))))

(ert-deftest thinklsp-test-a-restart-voids-the-text-since-the-last-step ()
  "A-5."
  (pcase-dolist (`(,values . ,shown)
                 '((((:kind "restart") "Whole.") . "\n\nWhole.")
                   (("Ha" (:kind "restart") (:kind "restart") "Whole.") . "\n\nWhole.")
                   (("I look." (:kind "usage") "Ha" (:kind "restart") "Whole.") . "\n\nI look.Whole.")
                   (("Ha" (:kind "restart")) . nil)))
    (with-temp-buffer
      (let* ((turn (make-thinklsp-turn :token "w" :text-token "p" :buffer (current-buffer)))
             (thinklsp--turns (list turn)))
        (dolist (value values)
          (thinklsp-on-progress "p" (if (stringp value) (list :kind "text" :delta value) value)))
        (should (equal shown (overlay-get (or (thinklsp-turn-overlay turn) (make-overlay 1 1)) 'after-string)))))))

(ert-deftest thinklsp-test-answers-are-read-as-clients-hand-them-over ()
  (let ((table (make-hash-table :test 'equal))
        (inner (make-hash-table :test 'equal)))
    (puthash "applied" "all" inner)
    (puthash "edits" inner table)
    (dolist (answer (list table '(:edits (:applied "all"))))
      (should (equal "all" (thinklsp-get answer 'edits 'applied)))
      (should-not (thinklsp-get answer 'edits 'files))
      (should-not (thinklsp-get answer 'text 'delta))
      (let ((other (thinklsp-with answer 'instruction "shorter")))
        (should (equal "shorter" (thinklsp-get other 'instruction)))
        (should (equal "all" (thinklsp-get other 'edits 'applied)))
        (should-not (thinklsp-get answer 'instruction)))))
  (should-not (thinklsp-true :json-false))
  (should-not (thinklsp-true :json-null))
  (should (thinklsp-true "text")))

(ert-deftest thinklsp-test-a-file-is-named-by-its-uri ()
  (with-temp-buffer
    (should-error (thinklsp-uri) :type 'user-error)
    (setq buffer-file-name "/some folder/größe#1.py")
    (should (equal "file:///some%20folder/gr%C3%B6%C3%9Fe%231.py" (thinklsp-uri)))
    (set-buffer-modified-p nil)))

(ert-deftest thinklsp-test-no-server-is-said ()
  (with-temp-buffer
    (dolist (command '(thinklsp-fix thinklsp-explain thinklsp-undo thinklsp-usage thinklsp-sessions))
      (should-error (call-interactively command) :type 'user-error))
    (should (equal " thinklsp" (thinklsp-status)))))

;;; Edits

(defun thinklsp-test-changes (folder)
  "Return changes of files in FOLDER: one is created, one deleted, one changed."
  (let ((uri (lambda (name) (concat "file://" folder name))))
    (vector (list :kind "create" :uri (funcall uri "new/a%20b.txt"))
            (list :textDocument (list :uri (funcall uri "new/a%20b.txt") :version nil)
                  :edits [(:range (:start (:line 0 :character 0) :end (:line 0 :character 0))
                           :newText "\ufeffone\r\ntwo")])
            (list :kind "delete" :uri (funcall uri "old.txt"))
            (list :textDocument (list :uri (funcall uri "kept.txt") :version nil)
                  :edits [(:range (:start (:line 1 :character 0) :end (:line 2 :character 0)) :newText "TWO\n")]))))

(defun thinklsp-test-bytes (path)
  "Return the bytes of the file PATH."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally path)
    (buffer-string)))

(ert-deftest thinklsp-test-an-edit-writes-new-files-byte-by-byte ()
  (let ((folder (file-name-as-directory (make-temp-file "thinklsp" t))))
    (write-region "old\n" nil (concat folder "old.txt") nil 'silent)
    (write-region "one\ntwo\n" nil (concat folder "kept.txt") nil 'silent)
    (let ((edit (list :documentChanges (thinklsp-test-changes folder)))
          (apply-edits (lambda (edits _version)
                         (goto-char (point-min))
                         (forward-line 1)
                         (delete-region (point) (point-max))
                         (insert (thinklsp-get (aref edits 0) 'newText)))))
      (should (equal '(:applied t) (thinklsp-answer-edit edit apply-edits)))
      (should (equal "\357\273\277one\r\ntwo" (thinklsp-test-bytes (concat folder "new/a b.txt"))))
      (should-not (file-exists-p (concat folder "old.txt")))
      (should (equal "one\nTWO\n" (thinklsp-test-bytes (concat folder "kept.txt"))))
      ;; A file that is there already is not replaced.
      (should (eq :json-false (plist-get (thinklsp-answer-edit edit apply-edits) :applied)))
      (should (equal "\357\273\277one\r\ntwo" (thinklsp-test-bytes (concat folder "new/a b.txt")))))))

(ert-deftest thinklsp-test-the-files-of-an-edit-are-named-with-their-changes ()
  (let ((default-directory "/x/"))
    (should (equal '(("file:///x/new/a%20b.txt" "Create new/a b.txt" . 1) ("file:///x/old.txt" "Delete old.txt" . 1)
                     ("file:///x/kept.txt" "Change kept.txt" . 1))
                   (thinklsp--files (thinklsp-test-changes "/x/"))))))

(provide 'thinklsp-test)
;;; thinklsp-test.el ends here
