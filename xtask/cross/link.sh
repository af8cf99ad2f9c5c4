#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the linker of an image with paths that are relative to the mirror, so that image and debug information do not depend on
# where the sources are. rustc calls it with the arguments of lld. From the environment: VIORDMA_LINKER, the linker;
# VIORDMA_MIRROR, the mirror; VIORDMA_SYSROOT, the directory of the compiler's libraries.
set -euo pipefail
cd "$VIORDMA_MIRROR"
mkdir -p out
ln -sfn "$VIORDMA_SYSROOT" out/sysroot
flavor=("$1" "$2")
shift 2
for argument in "$@"; do
    option=
    [[ $argument == /DEF:* ]] && option=/DEF:
    argument=${argument#"$option"}
    # rustc's directory for generated objects has a random name.
    if [[ $argument =~ ^/.*/rustc[A-Za-z0-9]{6}(/.*)$ ]]; then
        ln -sfn "${argument%"${BASH_REMATCH[1]}"}" out/generated
        argument=out/generated${BASH_REMATCH[1]}
    fi
    argument=${argument//"$VIORDMA_MIRROR/"/}
    argument=${argument//"$VIORDMA_SYSROOT/"/out/sysroot/}
    printf '"%s"\n' "$option$argument"
done >out/link.rsp
exec "$VIORDMA_LINKER" "${flavor[@]}" @out/link.rsp /PDBSOURCEPATH:/viordma
