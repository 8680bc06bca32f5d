# shellcheck shell=bash
# Functions of .ci/run and .ci/nightly, which source this file.

python=${PYTHON:-python3}
rooms=$(mktemp -d)
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Without bytecode files every pytest worker would compile all tests, and every started server all of thinklsp.
unset PYTHONDONTWRITEBYTECODE

install_debian() { # install_debian PACKAGE...: installs packages if this is root and any of them is missing
  if [ "$(id -u)" = 0 ] && ! dpkg -s "$@" >/dev/null 2>&1; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
  fi
}

prepare_python() { # prepare_python: installs the module venv where Debian has split it off
  "$python" -m venv "$rooms/probe" >/dev/null 2>&1 || install_debian python3-venv
}

fresh() { # fresh NAME: creates and activates a virtual environment
  "$python" -m venv "$rooms/$1"
  # shellcheck disable=SC1090,SC1091
  . "$rooms/$1/bin/activate"
  pip install -q --upgrade pip
}

second_chance() { # second_chance CODE [OPTION...]: runs the tests once more that failed in the pytest that ended with CODE
  python .ci/second_chance.py "$@"
}

minutes() { # minutes SECONDS: prints them as M:SS
  printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}
