# Compiles every shader to SPIR-V for each storage type, validates and optimizes it. Appends the results, in
# the build folder's shaders/, to SPVS.

# dev/setup.sh installs newer tools in .tools/bin if the system's are too old; the glob then reconfigures.
file(GLOB PRIVATE_TOOLS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.tools/bin/*)
set(TOOLS ${PROJECT_SOURCE_DIR}/.tools/bin)
find_program(GLSLANG NAMES glslang glslangValidator HINTS ${TOOLS} NO_CACHE)
find_program(SPIRV_VAL spirv-val HINTS ${TOOLS} NO_CACHE)
find_program(SPIRV_OPT spirv-opt HINTS ${TOOLS} NO_CACHE)
need(GLSLANG glslang glslang-tools)
need(SPIRV_VAL spirv-val spirv-tools)
need(SPIRV_OPT spirv-opt spirv-tools)
execute_process(COMMAND ${GLSLANG} --version OUTPUT_VARIABLE glslang_version)
string(REGEX REPLACE "^Glslang Version: [0-9]+:([0-9.]+).*" "\\1" glslang_version "${glslang_version}")
if(glslang_version VERSION_LESS 15.3)
  message(FATAL_ERROR "${GLSLANG} is ${glslang_version}; bf16 shaders need 15.3 or later: "
    "run dev/setup.sh, or configure with -DWITH_SHADERS=OFF for a build that runs on the CPU only")
endif()

set(SPV ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${SPV})
file(GLOB_RECURSE SHADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/*.comp)
foreach(shader ${SHADERS})
  get_filename_component(kernel ${shader} NAME_WE)
  set(types fp32 bf16 fp16)
  if(shader MATCHES "/cooperative_matrix/fp32/")
    set(types fp32)
  elseif(shader MATCHES "/cooperative_matrix/")  # their operands have 16 bits
    set(types bf16 fp16)
  endif()
  foreach(type ${types})
    set(name ${kernel}_${type})
    string(TOUPPER REAL_${type} definition)
    add_custom_command(OUTPUT ${SPV}/${name}.spv DEPENDS ${shader} DEPFILE ${SPV}/${name}.d
      COMMAND ${GLSLANG} --quiet --target-env vulkan1.3 -D${definition} -I${PROJECT_SOURCE_DIR}/shaders
        --depfile ${SPV}/${name}.d ${shader} -o ${SPV}/${name}.spv
      COMMAND ${SPIRV_VAL} --target-env vulkan1.3 --scalar-block-layout ${SPV}/${name}.spv
      COMMAND ${SPIRV_OPT} --target-env=vulkan1.3 -O ${SPV}/${name}.spv -o ${SPV}/${name}.spv
      COMMENT "Compiling shader ${name}" VERBATIM)
    list(APPEND SPVS ${SPV}/${name}.spv)
  endforeach()
endforeach()
