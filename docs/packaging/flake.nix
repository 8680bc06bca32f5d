{
  description = "A language server that thinks: an AI coding assistant for any editor that speaks LSP.";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs = { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      grammars = [
        "tree-sitter-bash"
        "tree-sitter-c"
        "tree-sitter-c-sharp"
        "tree-sitter-cpp"
        "tree-sitter-go"
        "tree-sitter-java"
        "tree-sitter-javascript"
        "tree-sitter-lua"
        "tree-sitter-php"
        "tree-sitter-python"
        "tree-sitter-ruby"
        "tree-sitter-rust"
        "tree-sitter-typescript"
      ];
      build = pkgs:
        let
          ps = pkgs.python3Packages;
          # A language whose grammar nixpkgs does not have gets no outlines.
          present = lib.filter (name: ps ? ${name}) grammars;
        in
        ps.buildPythonApplication {
          pname = "thinklsp";
          version = "0.2.0";
          pyproject = true;
          src = self.sourceInfo; # The repository, not this folder.
          build-system = [ ps.hatchling ];
          dependencies = [
            ps.anyio
            ps.cattrs
            ps.certifi
            ps.httpcore
            ps.httpx
            ps.lsprotocol
            ps.markdown-it-py
            ps.platformdirs
            ps.pydantic
            ps.pygls
            ps.rich
            ps.tomlkit
            ps.tree-sitter
            ps.websockets
          ] ++ map (name: ps.${name}) present;
          pythonRelaxDeps = true;
          pythonRemoveDeps = [ "ripgrep" ] ++ lib.subtractLists present grammars;
          makeWrapperArgs = [ "--prefix PATH : ${lib.makeBinPath [ pkgs.ripgrep ]}" ];
          pythonImportsCheck = [ "thinklsp" ];
          doCheck = false;
          meta = {
            description = "A language server that thinks: an AI coding assistant for any editor that speaks LSP.";
            homepage = "https://github.com/OWNER/thinklsp";
            license = lib.licenses.asl20;
            mainProgram = "thinklsp";
          };
        };
    in
    {
      packages = lib.genAttrs systems (system: { default = build nixpkgs.legacyPackages.${system}; });
    };
}
