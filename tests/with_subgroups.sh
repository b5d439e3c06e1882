#!/bin/sh
# with_subgroups.sh SIZE PROGRAM ARGS...: runs a test on a software device with subgroups of SIZE, which the
# caller requests with LP_NATIVE_VECTOR_WIDTH. Exits with 77, for "skipped", where the tests use another
# device. With subgroups of 16, LayerNorm needs a newer Mesa (dev/setup.sh newer-mesa): on Mesa 22.3,
# layernorm_forward3 adds up 8 of 16 invocations for rows that take one
# load per invocation (9 to 16 elements, loaded one by one), also with GALLIVM_PERF=nopt. Mesa 25.0 and 26.1
# compute the same SPIR-V right; 26.1 crashes for other kernels. Mesa's cache is not used: it takes the code of
# a shader for another size of subgroups where only that size differs, such as that of the probe.
[ -z "$LLMC_TEST_DEVICE" ] || exit 77
newer=
case "$1 $2" in
    16*layernorm_test)
        newer=$(dirname "$0")/../.tools/bin/with-newer-mesa
        [ -x "$newer" ] || exit 77 ;;
esac
shift
MESA_SHADER_CACHE_DISABLE=true exec $newer "$@"
