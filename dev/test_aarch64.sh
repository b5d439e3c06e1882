#!/bin/bash
# Builds the CPU versions for 64-bit Arm with a cross compiler. Runs their tests and test_gpt2 under qemu,
# with and without FEAT_BF16. Run `make` first. Needs the Debian or Ubuntu packages g++-aarch64-linux-gnu,
# qemu-user and libgtest-dev.
#
#     dev/test_aarch64.sh [test ...]       for example matmul_cpu_test; default: all tests of CPU versions
set -euo pipefail
cd "$(dirname "$0")/.."
out=build-aarch64
mkdir -p $out/include
tests=("$@")
[ $# -gt 0 ] || tests=(adamw_test attention_test classifier_test peak_cpu_test dropout_test encoder_test
  gelu_test global_norm_test gradient_sum_test layernorm_test matmul_cpu_test muon_test decode_linear_test
  random_test real_test)
fail() {
  echo "dev/test_aarch64.sh: $1" >&2
  exit 1
}
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $tool > /dev/null || fail "no $tool: install g++-aarch64-linux-gnu and qemu-user"
done
for needed in build/{embedded_shaders.cpp,baseline_shaders.cpp,commit.h} \
  /usr/src/googletest/googletest/src/gtest-all.cc; do
  [ -e $needed ] || fail "no $needed: run make, and install libgtest-dev"
done
# Only headers: files that need libraries for Arm (tokenizer, TensorBoard) are left out.
for headers in vulkan vk_video nlohmann toml++ gtest; do
  [ ! -e /usr/include/$headers ] || ln -sfn /usr/include/$headers $out/include/$headers
done

compile() {
  local object=$out/${1//\//_}.o extra=()
  [[ $fused != *"$1"* ]] || extra=(-ffp-contract=fast)
  [[ $1 != /usr/* ]] || extra=(-w)  # not ours
  aarch64-linux-gnu-g++ -std=c++20 -O3 -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror \
    -fno-math-errno -fopenmp -DVK_NO_PROTOTYPES -DPROJECT_VERSION='"aarch64"' \
    -DBINARY_DIR="\"$PWD/$out\"" -DSOURCE_DIR="\"$PWD\"" -I. -idirafter build -isystem $out/include \
    -isystem /usr/src/googletest/googletest "${extra[@]}" -c "$1" -o "$object"
}
fused=$(sed -n '/^set_source_files_properties(llmc\/cpu\/gemm_kernels/,/PROPERTIES/p' CMakeLists.txt)
[ -n "$fused" ] || fail "no list of the files with fused multiply-adds in CMakeLists.txt"
export -f compile
export out fused
library=$(ls llmc/*/*.cpp dev/vulkan/baselines/*.cpp | grep -vE 'tensorboard|tokenizer|text_(stream|reader)')
sources=($library build/{embedded,baseline}_shaders.cpp tests/amx_emulator.cpp
  /usr/src/googletest/googletest/src/gtest{-all,_main}.cc test_gpt2.cpp "${tests[@]/#/tests/}")
rm -f $out/*.o  # of files that no longer exist
printf '%s\n' "${sources[@]/%_test/_test.cpp}" | xargs -P "$(nproc)" -I{} bash -c 'compile {}'
rm -f $out/libllmc.a
aarch64-linux-gnu-ar rcs $out/libllmc.a $out/{llmc,dev_vulkan}_*.o \
  $out/{build_embedded_shaders,build_baseline_shaders,tests_amx_emulator}.cpp.o
link() {  # hides the linker's warnings about static programs
  aarch64-linux-gnu-g++ -static -fopenmp -o "$out/$1" "${@:2}" $out/libllmc.a -ldl -lpthread \
    2> $out/link.log || { cat $out/link.log; exit 1; }
}

export LLMC_TEST_DEVICE=none
for test in "${tests[@]}"; do
  link $test $out/tests_$test.cpp.o $out/_usr_src_googletest_googletest_src_gtest{-all,_main}.cc.o
  qemu-aarch64 -cpu max $out/$test > $out/$test.log || { cat $out/$test.log; exit 1; }
  echo "$test: $(grep -F '[  PASSED  ]' $out/$test.log)"
done
link test_gpt2 $out/test_gpt2.cpp.o
reference=tests/reference/tiny
for cpu in max cortex-a57; do  # with and without FEAT_BF16
  for precision in fp32 bf16 fp16; do
    qemu-aarch64 -cpu $cpu $out/test_gpt2 --device cpu --precision $precision \
      --losses ${reference}_losses.txt $reference.bin ${reference}_debug_state.bin > $out/test_gpt2.log ||
      { cat $out/test_gpt2.log; exit 1; }
    echo "test_gpt2 in $precision on $cpu: $(tail -n 1 $out/test_gpt2.log)"
  done
done
