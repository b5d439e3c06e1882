# Writes OUTPUT, a C++ file that holds every SPIR-V file of FILES as an array of words, declared in
# llmc/launchpad/shaders.h. Run as: cmake -DOUTPUT=... -DFILES="a.spv;b.spv" -P embed.cmake
set(arrays "")
set(table "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  # SPIR-V words are little-endian: bytes 03 02 23 07 are the word 0x07230203
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${hex}")
  string(APPEND arrays "static const uint32_t ${name}[] = {${words}};\n")
  string(APPEND table "    {\"${name}\", ${name}, sizeof ${name}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"llmc/launchpad/shaders.h\"\n${arrays}\
const EmbeddedShader embedded_shaders[] = {\n${table}    {nullptr, nullptr, 0},\n};\n")
