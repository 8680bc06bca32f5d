#!/usr/bin/env bash
# Build llama-server (llama.cpp) from the source archive that PyPI has of llama-cpp-python, without network besides pip.
# Usage: build_llama_server.sh FOLDER. Takes about 12 minutes on 2 cores and 300 MB; prints the path of the program.
# Needs a C++ compiler. CPU only, without its web page and without TLS: the trials use neither.
set -euo pipefail

version=0.3.36
folder=$(mkdir -p "$1" && cd "$1" && pwd)
program=$folder/llama-server-$version
jobs=${JOBS:-2}

if [ ! -x "$program" ]; then
  cd "$folder"
  python3 -m venv tools
  tools/bin/pip install -q --disable-pip-version-check 'cmake>=3.28,<4.2' 'ninja>=1.11'
  if [ ! -d "llama_cpp_python-$version" ]; then
    tools/bin/pip download -q --disable-pip-version-check --no-deps --no-binary :all: "llama-cpp-python==$version"
    tar -xzf "llama_cpp_python-$version.tar.gz"
  fi
  PATH=$folder/tools/bin:$PATH
  # Optimised just enough: the model of the trials has a few thousand weights, and -O3 doubles the time of the build.
  nice -n 10 cmake -G Ninja -S "llama_cpp_python-$version/vendor/llama.cpp" -B build \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE='-O2 -DNDEBUG' -DCMAKE_CXX_FLAGS_RELEASE='-O1 -DNDEBUG' \
    -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_OPENMP=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF >configured.txt
  nice -n 10 cmake --build build --target llama-server -j "$jobs" >built.txt
  cp build/bin/llama-server "$program"
fi
echo "$program"
