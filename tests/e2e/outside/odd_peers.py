"""What other servers and clients really send, against the letter of LSP: one row for each shape, with who sends it.

The name is that of the server or client, with the issue that shows the shape. `audit`: found by trying, sender unknown.
"""

from __future__ import annotations

from typing import Any

GONE = object()
"""In place of a member that is missing."""

HUGE = 1.7976931348623157e308
SAID = "raduis is not defined"
SOMETHING = "this problem"
Shape = dict[str, Any]


def at(start_line: Any, start: Any, end_line: Any, end: Any) -> Shape:
    return {"start": {"line": start_line, "character": start}, "end": {"line": end_line, "character": end}}


HERE = at(4, 15, 4, 21)
LINK = {"location": {"uri": "file:///lib.py", "range": HERE}, "message": "declared here"}
VIM = {"bufnr": 1, "lnum": 4, "col": 15, "end_lnum": 4, "end_col": 21, "namespace": 21, "user_data": {"lsp": []}}

# Who, what differs from an ordinary diagnostic, and what the menu says in place of its message.
DIAGNOSTICS: list[tuple[str, Shape, str]] = [
    ("Roslyn: dotnet/roslyn#70426", {"tags": [-6, -4, -7, -2, 1]}, SAID),
    ("audit", {"tags": [-1]}, SAID),
    ("audit", {"tags": [3, None, "1"]}, SAID),
    ("audit", {"tags": 1}, SAID),
    ("Regal: open-policy-agent/regal#585", {"severity": 0}, SAID),
    ("coala: coala/coala-vs-code#43", {"severity": 0, "source": "coala"}, SAID),
    ("audit", {"severity": 5}, SAID),
    ("audit", {"severity": "error"}, SAID),
    ("merlin: ycm-core/ycmd#1497", {"severity": GONE}, SAID),
    ("audit", {"severity": None, "source": None, "tags": None, "relatedInformation": None, "data": None}, SAID),
    ("Regal: open-policy-agent/regal#585", {"code": {"value": "opa-fmt", "target": "https://example.com"}}, SAID),
    ("ccls: MaskRay/ccls#395", {"code": "2"}, SAID),
    ("pylsp-mypy: python-lsp/pylsp-mypy#100", {"code": None}, SAID),
    ("audit", {"code": {}}, SAID),
    ("audit", {"code": 1.5}, SAID),
    ("audit", {"code": True}, SAID),
    ("audit", {"codeDescription": {"href": None}}, SAID),
    ("audit", {"codeDescription": {}}, SAID),
    ("audit", {"source": ["pyright"]}, SAID),
    (
        "OmniSharp: OmniSharp/csharp-language-server-protocol#542",
        {"relatedInformation": [{"message": "x"}, LINK]},
        SAID,
    ),
    ("OmniSharp: the same", {"relatedInformation": [{"location": {}, "message": "x"}]}, SAID),
    ("audit", {"relatedInformation": {}}, SAID),
    ("cppcheck: neoclide/coc.nvim#2241", {"range": at(-1, 0, 0, 0)}, SAID),
    ("Dafny: dafny-lang/dafny#2529", {"range": at(-1, -1, -1, 29), "relatedInformation": []}, SAID),
    ("clj-kondo: clojure-lsp/clojure-lsp#198", {"range": at(-1, -1, -1, -1)}, SAID),
    ("Rascal: usethesource/rascal-language-servers#58", {"range": at(-1, 0, -1, 0), "source": GONE}, SAID),
    ("golangci-lint: neovim/neovim#16733", {"range": at(4, -1, 4, -1), "code": GONE}, SAID),
    ("vim-language-server: iamcco/vim-language-server#40", {"range": at(4, -1, 4, 0)}, SAID),
    ("PHP: felixfbecker/php-language-server#59", {"range": at(4, 0, -1, 0)}, SAID),
    ("ESLint: microsoft/vscode-eslint#752", {"range": at(4, 15, None, None)}, SAID),
    ("R: REditorSupport/languageserver#453", {"range": at(4, "NA", 4, "NA")}, SAID),
    ("LaTeX Workshop: openlawlibrary/pygls#326", {"range": at(None, 0, None, 65535)}, SAID),
    ("Oxlint: oxc-project/oxc#10609", {"range": at(2**32 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1), "code": ""}, SAID),
    ("Ansible: ansible/ansible-language-server#261", {"range": at(4, 0, 4, 2**53 - 1)}, SAID),
    ("VS Code's PHP: microsoft/vscode#196167", {"range": at(4, 0, 4, HUGE)}, SAID),
    ("audit", {"range": at(4.0, 15.0, 4.0, 21.0)}, SAID),
    ("audit", {"range": at(4, 15.5, 4, 20.75)}, SAID),
    ("audit", {"range": at(4, 21, 4, 15)}, SAID),
    ("lspsaga: nvimdev/lspsaga.nvim#1478", {"range": GONE} | VIM, SAID),
    ("navigator.lua: rust-lang/rust-analyzer#13503", {"range": None} | VIM, SAID),
    ("audit", {"range": {}}, SAID),
    ("audit", {"range": [4, 15]}, SAID),
    ("vscode-languageserver-node#695", {"message": GONE}, SOMETHING),
    ("audit", {"message": None}, SOMETHING),
    ("audit", {"message": ""}, SOMETHING),
    ("audit", {"message": 3}, SOMETHING),
    ("JETLS: aviatesk/JETLS.jl#633", {"message": {"kind": "markdown", "value": SAID}}, SAID),
    ("audit", {"message": {"value": SAID}}, SAID),
    ("audit", {"message": {"kind": "markdown", "value": None}}, SOMETHING),
    ("audit", {"message": [SAID]}, SOMETHING),
    ("Angular: zed-industries/zed#24084", {"data": 7044}, SAID),
    ("LSP4MP: eclipse-lsp4mp/lsp4mp#340", {"data": {"a": [None, 1.5, {"b": False}]}}, SAID),
    ("audit", {"data": [[]], "unknown": {"x": 1}}, SAID),
]

GOOD = {
    "range": HERE, "message": SAID, "severity": 1, "source": "pyright", "code": "undefined", "tags": [1],
    "relatedInformation": [LINK], "data": {"x": 1},
}  # fmt: skip
KINDS = ["quickfix", "refactor.rewrite"]

# Who, and the params beside `textDocument`: each gives the menu of the ordinary context with the same diagnostics.
CONTEXTS: list[tuple[str, Shape, bool]] = [
    ("audit", {"context": {"diagnostics": [GOOD], "triggerKind": 0}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "triggerKind": 3}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "triggerKind": "1"}}, True),
    ("Sublime LSP before sublimelsp/LSP#1890", {"context": {"diagnostics": [GOOD]}}, True),
    ("BSL: 1c-syntax/bsl-language-server#4078", {"context": {"diagnostics": [GOOD], "triggerKind": None}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "only": None}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "only": {}}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "only": [None]}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "only": [None, 3, *KINDS]}}, True),
    ("audit", {"context": {"diagnostics": [GOOD], "only": "quickfix"}}, True),
    ("audit", {"context": {"diagnostics": [None, "x", [], GOOD]}}, True),
    ("Teal: teal-language/teal-language-server#64", {"context": {"diagnostics": {}}}, False),
    ("audit", {"context": {"diagnostics": None}}, False),
    ("audit", {"context": {}}, False),
    ("textadept: orbitalquark/textadept-lsp#1", {"context": []}, False),
    ("audit", {"context": None}, False),
    ("microsoft/language-server-protocol#398", {"context": GONE}, False),
    ("VS Code: microsoft/vscode#80288", {"range": at(4, 15, 4, HUGE), "context": {"diagnostics": [GOOD]}}, True),
]

# Who, and what differs from ordinary params of `initialize`.
INITIALIZE: list[tuple[str, Shape]] = [
    ("Eclipse Che: eclipse-che/che#2466", {"capabilities": GONE}),
    ("audit", {"capabilities": None}),
    ("textadept: orbitalquark/textadept-lsp#1", {"capabilities": [], "initializationOptions": []}),
    (
        "Visual Studio: openlawlibrary/pygls#438",
        {
            "capabilities": {
                "textDocument": {
                    "completion": {"completionItemKind": {"valueSet": [0, 25, 118115]}},
                    "publishDiagnostics": {"tagSupport": {"valueSet": [1, 2, -1, -2, -3]}},
                    "codeAction": {"codeActionLiteralSupport": None, "tagSupport": {"valueSet": None}},
                }
            }
        },
    ),
    ("audit", {"capabilities": {"workspace": None, "textDocument": [], "window": True, "general": "utf-8"}}),
    ("audit", {"capabilities": {"general": {"positionEncodings": [8, None, "utf-8"], "regularExpressions": 1}}}),
    ("audit", {"capabilities": {"workspace": {"applyEdit": "yes", "workspaceEdit": [], "configuration": 1}}}),
    ("lsp4intellij: ballerina-platform/lsp4intellij#320", {"folder": {"name": GONE}}),
    ("Zed: zed-industries/zed#60518", {"folder": {"name": ""}}),
    ("audit", {"folder": {"name": None}}),
    ("a small client: microsoft/vscode-languageserver-node#257", {"rootUri": GONE, "workspaceFolders": GONE}),
    ("audit", {"workspaceFolders": {}}),
    ("audit", {"workspaceFolders": [None, "x", {"name": "y"}]}),
    ("pasls: genericptr/pascal-language-server#167", {"clientInfo": GONE}),
    ("audit", {"clientInfo": "an editor", "processId": "7", "trace": 3, "locale": None}),
    ("audit", {"processId": 1.5, "initializationOptions": "none"}),
]

# Who, and the answer to `workspace/configuration`: each leaves what `initialize` had set.
CONFIGURATION: list[tuple[str, Any]] = [
    ("kakoune-lsp: bash-lsp/bash-language-server#644", [None]),
    ("yegappan/lsp#425", [{}]),
    ("Sublime LSP: sublimelsp/LSP#906", {}),
    ("lite-xl: lite-xl/lite-xl-lsp#152", None),
    ("rag-rat: cq27-dev/rag-rat#984", []),
    ("audit", [[]]),
    ("audit", "none"),
    ("audit", [None, {"effort": "high"}]),
    ("audit", [{"effort": 3, "thinking": [], "budget": None}]),
]


def changed(value: Shape, by: Shape) -> Shape:
    """Return a value with some members replaced or, if they are GONE, missing."""
    return {name: member for name, member in (value | by).items() if member is not GONE}
