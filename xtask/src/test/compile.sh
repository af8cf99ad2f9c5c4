#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Cargo calls it instead of rustc, with rustc and its arguments. Test programs are compiled without optimization, since the last level given
# counts: that takes a quarter of the time. Debug assertions, which follow the level, stay off: with them, tests that take long are ignored.
# The packages that they test are optimized, and so are these two programs, whose tests take longer without than their compilation with it.
case " $* " in
*" --crate-name bad_pointers "* | *" --crate-name protocol "*) exec "$@" ;;
*" --test "*) exec "$@" -Copt-level=0 -Cdebug-assertions=off ;;
*) exec "$@" ;;
esac
