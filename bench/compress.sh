# SPDX-License-Identifier: Apache-2.0
# `./dev bench compress [memory|packages|compiled|accuracy|side_by_side|picture] [its options]`: compressed activations; memory unless named.
need_package release
program=memory
case ${1-} in
  memory | packages | compiled | accuracy | side_by_side | picture)
    program=$1
    shift
    ;;
esac
exec .venv/bin/python "bench/compress/$program.py" "$@"
