# embed_shaders(TABLE SPVS) writes TABLE.cpp into the build folder: the SPIR-V files SPVS as the array TABLE,
# as llmc/launchpad/shaders.h declares it. The assembler copies each file, so embedding takes no time.
function(embed_shaders table spvs)
  set(arrays "")
  set(declarations "")
  set(entries "")
  foreach(file ${spvs})
    get_filename_component(name ${file} NAME_WE)
    string(APPEND arrays "    \".globl spirv_${name}, spirv_${name}_end\\n\"\n"
      "    \"spirv_${name}: .incbin \\\"${file}\\\"\\nspirv_${name}_end:\\n\"\n")
    foreach(symbol spirv_${name} spirv_${name}_end)
      string(APPEND declarations "extern const uint32_t ${symbol}[] asm(\"${symbol}\");\n")
    endforeach()
    string(APPEND entries "    {\"${name}\", spirv_${name}, spirv_${name}_end},\n")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${table}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"llmc/launchpad/shaders.h\"
#ifdef __APPLE__
asm(\".const_data\\n\"
#else
asm(\".section .rodata\\n\"
#endif
    \".balign 4\\n\"
@arrays@    \".text\\n\");
@declarations@
extern const EmbeddedShader @table@[];
const EmbeddedShader @table@[] = {
@entries@    {nullptr, nullptr, nullptr},
};
" @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${spvs}")
endfunction()
