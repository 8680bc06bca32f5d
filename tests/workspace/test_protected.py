"""Every entry of the list, in every spelling that some disk takes for the same name, for every operation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import pytest

from tests.support.shadowing import tree
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import OWN_FOLDERS, ProtectedPaths, load_patterns
from thinklsp.workspace.uri import RelPath
from thinklsp.workspace.view import WorkspaceView

# What the product promises, independent of how the list spells it.
PROMISED = [
    ".git/config", ".git/hooks/pre-commit", ".gitmodules", ".gitattributes", ".gitconfig", ".hg/hgrc",
    ".vscode/settings.json", ".vscode/tasks.json", "a.code-workspace", ".idea/workspace.xml",
    ".fleet/settings.json", ".zed/settings.json", ".helix/config.toml", ".nvim.lua", ".nvimrc", ".exrc",
    ".vimrc", ".dir-locals.el", ".dir-locals-2.el", "x.sublime-project", ".envrc", ".env", ".env.local",
    ".env.production", ".mcp.json", "mcp.json", ".cursor/mcp.json", ".cursorrules", ".claude/settings.json",
    ".codex/config.toml", ".gemini/settings.json", ".windsurfrules", ".kiro/x", ".amazonq/x", ".roo/mcp.json",
    ".clinerules", ".aider.conf.yml", ".continue/config.json", ".thinklsp/chat/x.chat.md", "AGENTS.md",
    "CLAUDE.md", ".devcontainer/devcontainer.json", ".github/workflows/ci.yml", ".gitlab-ci.yml",
    ".husky/pre-commit", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", "pip.conf",
    "evil.pth", "sitecustomize.py", "usercustomize.py", ".ripgreprc", ".bashrc", ".zshrc", ".profile",
    ".ssh/id_rsa", ".ssh/authorized_keys", ".aws/credentials", ".netrc", ".gnupg/x",
    ".github/copilot-instructions.md",
]  # fmt: skip


def spellings(path: str) -> Iterator[str]:
    """The same names as some disk would take them."""
    head, _, tail = path.rpartition("/")
    yield path
    yield path.upper()
    yield path.title()
    yield unicodedata.normalize("NFD", path)
    yield path.replace("s", "\u017f").replace("k", "\u212a")
    yield "/".join(f"{part}." for part in path.split("/"))
    yield "/".join(f"{part} " for part in path.split("/"))
    yield f"{path[:2]}\u200c{path[2:]}"
    yield f"deep/er/{path}"
    yield f"{head}/{tail}::$DATA" if head else f"{path}::$DATA"


def parts_of(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


SECRETS = [
    ".env", ".env.local", ".ssh/config", ".aws/credentials", ".netrc", ".gnupg/x", "keys/server.pem", "id_rsa",
    ".cargo/credentials.toml", ".config/gh/hosts.yml", "prod.tfvars", "terraform.tfstate", "terraform.tfstate.backup",
    ".my.cnf", ".s3cfg", ".gem/credentials", ".composer/auth.json", "id_rsa.old", ".netrc.bak", ".bash_history",
    ".streamlit/secrets.toml", "kubeconfig", ".kube/config", ".pgpass", ".htpasswd", "passwords.kdbx",
    ".git-credentials", ".docker/config.json", ".npmrc", ".pypirc", ".m2/settings.xml", ".zsh_history", ".psql_history",
    ".vault-token",
    "credentials.json", "service-account.json", "id_ed25519.bak", "prod.env", ".envrc", "wp-config.php", "master.key",
    "secrets.yml", "config/secrets.prod.yaml", "app-secrets.json", "secrets.ini", "k8s/db-secret.yaml",
    "credentials.yml", "config/credentials.toml", "credentials", "my_credentials.csv", "passwords.txt",
    "api_key.txt", "api-keys.json",
    "server.key.bak", "server.pem~", "id_rsa.1", ".server.key.swp", "#server.key#", ".env.old", "secrets.yml.orig",
    "kubeconfig.backup", "terraform.tfvars.save", ".yarnrc.yml", "appsettings.Development.json", ".Renviron", "a.asc",
    "backup.gpg", "x.ovpn", "wg0.conf", "wg-home.conf", "service.keytab", "deploy_rsa", "ssh_host_ed25519_key",
    "release.pkcs12", "key.properties", "app-firebase-adminsdk-x1.json", "token.json", "rootkey.csv", "accessKeys.csv",
    "rclone.conf", ".sentryclirc", "sftp-config.json", "ngrok.yml", ".msmtprc", "LocalSettings.php",
    "wp-config-prod.php", "Web.publishsettings", "group_vars/all/vault.yml", "Home.nmconnection",
]  # fmt: skip
# Names that a program takes in by itself.
TAKEN_IN = [
    ".neoconf.json", ".lazy.lua", ".nlsp-settings/lua_ls.json", ".luarc.json", ".pylintrc", ".rubocop.yml",
    ".ycm_extra_conf.py", ".mvn/extensions.xml", "Directory.Build.props", "Directory.Build.targets",
    ".settings/org.eclipse.jdt.core.prefs", "opencode.json", "crush.json", "Jenkinsfile", ".travis.yml",
    "azure-pipelines.yml", ".drone.yml", ".buildkite/pipeline.yml", ".gitpod.yml", ".gitpod.Dockerfile", ".mcp.json",
    ".cursor/rules/x.mdc", ".aider.conf.yml", ".project", ".classpath", ".clangd", ".solargraph.yml",
    ".vimspector.json",
    "appveyor.yml", ".cirrus.yml", "bitbucket-pipelines.yml", ".woodpecker.yml", ".overcommit.yml",
    ".yarn/releases/y.cjs",
    "bunfig.toml", "NuGet.config", ".vs/tasks.vs.json", ".metals/x", ".kilocode/rules", "lefthook.yml",
    ".run/x.run.xml",
    ".bazelrc", "ci.bazelrc", ".bazelrc.user", ".bazeliskrc", "tools/bazel", ".buckconfig", ".buckconfig.local",
    ".pants.rc", ".plzconfig", ".gn", ".gclient", "site_scons/site_init.py",
    "gradle/wrapper/gradle-wrapper.properties", ".sbtopts",
    ".sbtrc", ".mill-opts", ".lein-env", "profiles.clj", "rebar.config.script", ".formatter.exs", ".rvmrc", ".rspec",
    ".pnp.cjs", ".pdbrc", "rust-toolchain.toml", ".cargo/config.toml", ".proverc", ".busted", "ansible.cfg",
    "docker-compose.override.yml", ".xcode.env.local", "jupyter_server_config.py", "CMakeUserPresets.json",
]  # fmt: skip
FREE = [
    "src/app.py", "README.md", "git/config", "env.py", "src/environment.ts", ".github/dependabot.yml", ".gitignore",
    "docs/agents.rst", "gitattributes", "a/mcp.jsonl", ".github/CODEOWNERS", "workflows/ci.yml", "x.pth.py",
    "tests/test_env.py", "environment.yml", "id_utils.py", "secrets.py", "src/secrets/store.go", "credentials.py",
    "kubeconfig/main.go", "locales/en/auth.json", "keys.py", "config", "config.py", "settings.py", "settings.json",
    "history.py", "token.ts", "src/tfvars.rs", "netrc.py", "travis.py", "jenkins.py", "conftest.py", "Makefile",
    "Dockerfile", "docker-compose.yml", "package.json", "pyproject.toml", "tsconfig.json", ".eslintrc.json",
    ".prettierrc", ".editorconfig", ".dockerignore", "Cargo.toml", "go.mod", "build.gradle", "pom.xml", "rubocop.rb",
    "gitpod.go", "main.tf", "variables.tf", "opencode.py", "project.json", "run/main.c", "CONTRIBUTING.md", "rules.md",
    "appsettings.json", "secrets.rb", "secretary.json", "tokens.json", "backup.py", "app.old", "main.c.orig", "notes~",
    "src/wg.conf", "password.py", "credentials.md", "docs/secrets.md", "vault.go", "rsa.py", "api_keys.py", "#todo#",
]  # fmt: skip


@pytest.mark.parametrize("path", PROMISED)
def test_promised_names_cannot_be_written_in_any_spelling(path):
    rules = ProtectedPaths()
    assert [form for form in spellings(path) if rules.explain_write_refusal(parts_of(form)) is None] == []


@pytest.mark.parametrize("kind", ["own", "secret", "secret_files", "guarded"])
def test_every_entry_of_the_list_works(kind):
    rules = ProtectedPaths()
    for pattern in OWN_FOLDERS if kind == "own" else load_patterns(kind):
        example = re.sub(r"\[(.).*?\]", r"\1", pattern.replace("[0-9]", "1")).replace("*", "x")
        for form in spellings(example):
            assert rules.explain_write_refusal(parts_of(form)) is not None, form
        is_secret = kind != "guarded"
        assert (rules.explain_read_refusal(parts_of(example)) is not None) == is_secret, pattern
        below = rules.explain_write_refusal((*parts_of(example), "below"))
        assert (below is None) == (kind == "secret_files"), pattern
        assert rules.is_candidate(parts_of(example)[-1]) or not is_secret, pattern


@pytest.mark.parametrize("path", SECRETS)
def test_secrets_cannot_be_read(path):
    assert all(ProtectedPaths().explain_read_refusal(parts_of(form)) for form in spellings(path))


@pytest.mark.parametrize("path", TAKEN_IN)
def test_what_programs_take_in_can_be_read_and_not_written(path):
    rules = ProtectedPaths()
    assert rules.explain_write_refusal(parts_of(path)) is not None
    assert rules.explain_read_refusal(parts_of(path)) is None


@pytest.mark.parametrize("path", FREE)
def test_other_names_are_free(path):
    assert ProtectedPaths().explain_write_refusal(parts_of(path)) is None


def test_the_user_can_allow_one_by_one():
    allow = ("AGENTS.md", ".vscode/settings.json", ".env.example", ".thinklsp", ".github/workflows")
    rules = ProtectedPaths(allow=allow)
    free = ["AGENTS.md", "sub/agents.MD", ".vscode/settings.json", ".env.example", ".github/workflows/x/ci.yml"]
    kept = [".git/AGENTS.md", ".vscode/tasks.json", ".env", ".thinklsp/x", ".vscode", ".env.example/.ssh"]
    assert [path for path in free if rules.explain_write_refusal(parts_of(path))] == []
    assert [path for path in kept if not rules.explain_write_refusal(parts_of(path))] == []


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("path", PROMISED[::3])
def test_no_operation_gets_through_by_gate_or_overlay(tmp_path, path, exists):
    target = tmp_path / path
    tree(tmp_path, {"free.txt": "free\n"} | ({path: "old\n"} if exists else {}))
    with Root(str(tmp_path)) as root:
        place = RelPath.build(parts_of(path))
        free = RelPath.build(("free.txt",))
        overlay = EditOverlay(WorkspaceView([root]))
        written, other = overlay.view.resolve(path), overlay.view.resolve("free.txt")
        attempts = [
            lambda: root.create(place, b"x"),
            lambda: root.replace(place, b"x"),
            lambda: root.delete(place),
            lambda: root.rename(place, RelPath.build(("y",))),
            lambda: root.rename(free, place),
            lambda: overlay.write(written, "x"),
            lambda: overlay.delete(written),
            lambda: overlay.rename(written, overlay.view.resolve("y")),
            lambda: overlay.rename(other, written),
        ]
        for attempt in attempts:
            with pytest.raises(PathRefused):
                attempt()
        assert not overlay.build_edit_set()
    assert target.exists() == exists
    assert (tmp_path / "free.txt").read_text() == "free\n"


def test_git_directories_of_any_name_are_closed(tmp_path):
    bare = {"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "", "hooks/x": ""}
    tree(tmp_path / "looks" / "harmless", bare)
    with Root(str(tmp_path)) as root:
        for parts in [("looks", "harmless", "config"), ("looks", "harmless", "hooks", "pre-commit")]:
            with pytest.raises(PathRefused, match="git directory"):
                root.create(RelPath.build(parts), b"x")
        root.create(RelPath.build(("looks", "config")), b"x")
