# compile_shaders(OUTPUT FOLDER BUILD_FOLDER) compiles every shader below FOLDER to SPIR-V for each storage
# type, validates and optimizes it. OUTPUT receives the names of the results, in the build folder's
# BUILD_FOLDER/. If SHADERS_OF names another build folder, its results are used instead, since SPIR-V is the
# same for all systems; it has to be built first.

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

function(compile_shaders output folder build_folder)
  set(spvs)
  set(to ${CMAKE_CURRENT_BINARY_DIR}/${build_folder})
  if(SHADERS_OF)
    get_filename_component(to ${SHADERS_OF} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
    if(NOT EXISTS ${to}/build.ninja)
      message(FATAL_ERROR "SHADERS_OF: ${to} is not a build folder")
    endif()
    string(APPEND to /${build_folder})
  endif()
  file(MAKE_DIRECTORY ${to})
  file(GLOB_RECURSE shaders CONFIGURE_DEPENDS ${folder}/*.comp)
  foreach(shader ${shaders})
    get_filename_component(kernel ${shader} NAME_WE)
    set(types fp32 bf16 fp16)
    if(shader MATCHES "/cooperative_matrix/fp32/")
      set(types fp32 half_fp32)
    elseif(shader MATCHES "/cooperative_matrix/")  # their operands have 16 bits
      set(types bf16 fp16)
    endif()
    foreach(type ${types})
      set(name ${kernel}_${type})
      string(TOUPPER -DREAL_${type} definitions)
      if(type STREQUAL half_fp32)  # fp32 as pieces in fp16, for tests on devices without bf16
        set(definitions -DREAL_FP32 -DPIECES_FP16)
      endif()
      list(APPEND spvs ${to}/${name}.spv)
      if(SHADERS_OF)
        continue()
      endif()
      add_custom_command(OUTPUT ${to}/${name}.spv DEPENDS ${shader} DEPFILE ${to}/${name}.d
        COMMAND ${GLSLANG} --quiet --target-env vulkan1.3 ${definitions} -I${PROJECT_SOURCE_DIR}/shaders
          "-P#extension GL_GOOGLE_include_directive : require"
          --depfile ${to}/${name}.d ${shader} -o ${to}/${name}.spv
        COMMAND ${SPIRV_VAL} --target-env vulkan1.3 --scalar-block-layout ${to}/${name}.spv
        COMMAND ${SPIRV_OPT} --target-env=vulkan1.3 -O ${to}/${name}.spv -o ${to}/${name}.spv
        COMMENT "Compiling shader ${name}" VERBATIM)
    endforeach()
  endforeach()
  set(${output} "${spvs}" PARENT_SCOPE)
endfunction()
