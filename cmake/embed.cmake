# Sets EMBEDDED_SHADERS to a C++ file that holds the SPIR-V files SPVS, as llmc/launchpad/shaders.h declares
# them. The assembler copies each file, so a changed shader takes no time to embed.
set(EMBEDDED_SHADERS ${CMAKE_CURRENT_BINARY_DIR}/embedded_shaders.cpp)
set(arrays "")
set(declarations "")
set(table "")
foreach(file ${SPVS})
  get_filename_component(name ${file} NAME_WE)
  string(APPEND arrays "    \".globl spirv_${name}, spirv_${name}_end\\n\"\n"
    "    \"spirv_${name}: .incbin \\\"${file}\\\"\\nspirv_${name}_end:\\n\"\n")
  foreach(symbol spirv_${name} spirv_${name}_end)
    string(APPEND declarations "extern const uint32_t ${symbol}[] asm(\"${symbol}\");\n")
  endforeach()
  string(APPEND table "    {\"${name}\", spirv_${name}, spirv_${name}_end},\n")
endforeach()
file(CONFIGURE OUTPUT ${EMBEDDED_SHADERS} CONTENT "#include \"llmc/launchpad/shaders.h\"
#ifdef __APPLE__
asm(\".const_data\\n\"
#else
asm(\".section .rodata\\n\"
#endif
    \".balign 4\\n\"
@arrays@    \".text\\n\");
@declarations@
const EmbeddedShader embedded_shaders[] = {
@table@    {nullptr, nullptr, nullptr},
};
" @ONLY)
set_source_files_properties(${EMBEDDED_SHADERS} PROPERTIES OBJECT_DEPENDS "${SPVS}")
