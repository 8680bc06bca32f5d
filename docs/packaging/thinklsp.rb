class Thinklsp < Formula
  include Language::Python::Virtualenv

  desc "Language server that thinks: an AI coding assistant for any editor"
  homepage "https://github.com/OWNER/thinklsp"
  url "https://github.com/OWNER/thinklsp/releases/download/v0.2.0/thinklsp-0.2.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "rust" => :build # pydantic-core
  depends_on "python@3.13"
  depends_on "ripgrep"

  # `brew update-python-resources thinklsp` writes one resource for each dependency here.

  def install
    virtualenv_install_with_resources
  end

  test do
    ENV["THINKLSP_PROVIDER"] = "simulator"
    assert_match "thinklsp 0.2.0", shell_output("#{bin}/thinklsp --version")
    assert_match "ready to run a turn", shell_output("#{bin}/thinklsp doctor")
  end
end
